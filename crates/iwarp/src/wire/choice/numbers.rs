// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of queue pairs: by which wires a peer finds one.

use std::io;

use super::Wires;
use crate::engine::numbers::{Number, Numbers};
use crate::engine::options::Wire;

impl Wires {
    /// A number for a queue pair of the type RC that the connection manager connects: packets find
    /// it where it may speak RoCE v2.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; where connections are over packets only, those of opening UDP port 4791.
    pub(crate) fn number(&self) -> io::Result<Number> {
        if self.wing().is_some() {
            return Ok(self.engine.numbers.plain()?);
        }
        let by_packets = match self.spoken() {
            Wire::Iwarp => None,
            // It is iWARP where there are no datagrams.
            Wire::Auto => self
                .mux()
                .open_if_any(&self.engine)
                .and_then(|mux| Numbers::of_datagrams(&mux).ok()),
            Wire::Roce => Some(self.packet_number()?),
        };
        match by_packets {
            Some(number) => Ok(number),
            None => Ok(self.engine.numbers.plain()?),
        }
    }

    /// A number for a queue pair that is over packets always.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; errors of opening UDP port 4791.
    pub(crate) fn packet_number(&self) -> io::Result<Number> {
        if self.wing().is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Numbers::of_datagrams(&self.mux().open(&self.engine)?)
    }

    /// The number of an RC queue pair that is found by it: by TCP, by datagrams, or both.
    ///
    /// # Errors
    ///
    /// When no port is free; as [`Self::number`].
    pub(crate) fn addressable_number(&self) -> io::Result<Number> {
        let (engine, mux) = (&self.engine, self.mux());
        if self.wing().is_some() {
            return Ok(engine.numbers.plain()?);
        }
        match self.spoken() {
            Wire::Iwarp => engine.numbers.addressable(),
            Wire::Auto => {
                // It is iWARP where there are no datagrams.
                let mux = mux.open_if_any(engine);
                let found = mux.map(|mux| engine.numbers.addressable_by_both(&mux));
                found.and_then(Result::ok).map_or_else(|| engine.numbers.addressable(), Ok)
            }
            Wire::Roce => {
                let mux = mux.open(engine)?;
                let number = engine.numbers.addressable_by_both(&mux);
                number
                    .ok()
                    .filter(|number| number.mux().is_some())
                    .map_or_else(|| Numbers::of_datagrams(&mux), Ok)
            }
        }
    }
}
