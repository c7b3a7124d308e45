//! The simulators: nothing is found in what they run as it is, and what is planted in it is.

#[cfg(feature = "flaws")]
mod engine;
mod oracle;
mod roce;
