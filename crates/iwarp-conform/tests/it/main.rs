// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tester: its own encoder and decoder, its cases, and what it finds.

mod catalog;
mod deviations;
mod order;
mod peer;
mod readings;
mod vectors;
