//! Links the module so that Node resolves its own symbols.

fn main() {
    napi_build::setup();
}
