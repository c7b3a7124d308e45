// SPDX-License-Identifier: MIT OR Apache-2.0

//! A seeded network and an oracle around the protocol core.
//!
//! Two ends, each a queue pair with memory in plain vectors, exchange octets over links that cut,
//! delay, stop, break and corrupt. One stream of decisions drives everything, so a seed names a
//! run. The [`wire`] is read a second time by code of its own, and a [`model`] of each end says
//! what may be sent, where every octet has to go and which completion is due. The module `engine`
//! does so for the whole library, `local` compares the ways that a connection goes within a host,
//! and [`roce`] has the queue pairs of RoCE v2.

#![forbid(unsafe_code)]

pub mod bank;
pub mod choice;
#[cfg(feature = "engine")]
pub mod engine;
mod failure;
pub mod host;
pub mod hostile;
#[cfg(feature = "engine")]
pub mod local;
pub mod model;
pub mod net;
pub mod ops;
pub mod roce;
pub mod run;
pub mod wire;

pub use failure::Failure;
pub use host::Flaw;
pub use run::{Mode, Options, Summary, run_from_bytes, run_seed};
