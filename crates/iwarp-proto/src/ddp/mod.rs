// SPDX-License-Identifier: MIT OR Apache-2.0

//! Direct Data Placement (RFC 5041): segments, and where their payload belongs.

pub mod error;
pub mod rx;
pub mod tx;
pub mod wire;

#[cfg(test)]
mod tests;

pub use error::DdpError;
pub use wire::{Header, Tagged, Untagged};
