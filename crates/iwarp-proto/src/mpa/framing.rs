// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPA as a framing of DDP segments: its faults, and that its frames are not too long.

use super::error::MpaError;
use super::wire::MAX_ULPDU;
use crate::framing::{FramingFault, MAX_FRAME};

/// Markers take less than one octet in 64 of the longest FPDU.
const _: () = assert!(MAX_ULPDU + MAX_ULPDU / 64 <= MAX_FRAME);

/// Error type of MPA's faults (RFC 5044 §8).
const MPA_ERROR: u8 = 0;

static CLOSED: FramingFault = fault(MpaError::Closed);
static CRC: FramingFault = fault(MpaError::Crc);
static MARKER: FramingFault = fault(MpaError::Marker);

const fn fault(error: MpaError) -> FramingFault {
    FramingFault { etype: MPA_ERROR, code: error.code(), text: error.text() }
}

impl MpaError {
    /// The fault for a Terminate.
    pub const fn fault(self) -> &'static FramingFault {
        match self {
            Self::Closed => &CLOSED,
            Self::Crc => &CRC,
            Self::Marker => &MARKER,
        }
    }
}
