// SPDX-License-Identifier: MIT OR Apache-2.0

//! Remote Direct Memory Access Protocol (RFC 5040) and its extensions (RFC 7306): messages.

pub mod error;
pub mod hello;
pub(crate) mod reads;
pub(crate) mod requester;
pub mod rx;
pub mod terminate;
pub mod tx;
pub mod wire;

#[cfg(test)]
mod tests;

pub use error::RdmapError;
pub use wire::Opcode;
