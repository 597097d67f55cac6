//! End-to-end tests of the gate: a trading floor over a real socket, random models, and declared
//! tools.

mod gate {
    pub mod attribute;
    pub mod exchange;
    pub mod random;

    pub mod property;
    pub mod trading;
}
