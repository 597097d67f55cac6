//! The documents: their commands run, the program reads their examples, and their links lead
//! somewhere.
#![cfg(unix)]

mod docs {
    pub mod commands;
    pub mod examples;
    pub mod excused;
    pub mod links;
    pub mod page;
    pub mod picture;
    pub mod statements;
    pub mod world;
}
