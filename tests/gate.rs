//! End-to-end tests of the gate: a trading floor over a real socket, and random models.

mod gate {
    pub mod exchange;
    pub mod random;

    pub mod property;
    pub mod trading;
}
