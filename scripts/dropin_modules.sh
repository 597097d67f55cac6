# Sourced by scripts that run a module of tests/dropin: sets TOOLSCOUT to the program, which it builds where it is missing,
# and puts the modules and what they need into target/dropin.
program=${TOOLSCOUT:-target/debug/toolscout}
[ -x "$program" ] || cargo build --quiet --locked --bin toolscout
TOOLSCOUT=$(realpath "$program")
export TOOLSCOUT
[ -d target/dropin/node_modules ] || scripts/check_dropin.sh nothing
cp tests/dropin/*.mjs target/dropin
