// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures that are made, kept or random, and what is said of them.

mod hostile;
mod iwarp;
mod kept;
mod made;
mod roce;
mod shapes;
