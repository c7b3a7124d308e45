// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connection manager, from outside.

mod capture;
mod datagrams;
mod endings;
mod network;
mod rules;
mod scene;
mod strangers;
mod vectors;
