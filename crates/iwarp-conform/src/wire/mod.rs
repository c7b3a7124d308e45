// SPDX-License-Identifier: MIT OR Apache-2.0

//! iWARP on the wire, once more: slow, plain, and written from the RFCs alone.

pub mod crc;
pub mod fpdu;
pub mod segment;
pub mod startup;
