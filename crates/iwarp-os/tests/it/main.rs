//! The edges of the system from outside.

mod guard;
mod poll;
mod socket;
