//! The gate from outside: a trading floor over a real socket, a table of attacks, and random models.

mod gate {
    pub mod exchange;
    pub mod random;

    pub mod attacks;
    pub mod builtins;
    pub mod property;
    pub mod trading;
}
