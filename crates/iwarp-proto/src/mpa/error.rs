// SPDX-License-Identifier: MIT OR Apache-2.0

//! The errors of an MPA connection (RFC 5044 §8, RFC 6581 §8).

pub use iwarp_types::{StartupError, StartupFault};

/// A fault in Full Operation. The layer above reports it by a Terminate of layer 2, error type 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub enum MpaError {
    /// The TCP connection was closed, reset or lost.
    Closed,
    /// The CRC of a received FPDU does not match its octets.
    Crc,
    /// A marker does not point to the FPDU that the chain of lengths leads to, or a ULPDU_Length
    /// is beyond what markers can point over ([`super::wire::MAX_ULPDU`]).
    Marker,
}

impl MpaError {
    /// The error code of RFC 5044 §8.
    pub const fn code(self) -> u8 {
        match self {
            Self::Closed => 1,
            Self::Crc => 2,
            Self::Marker => 3,
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Closed => "TCP connection closed, terminated or lost",
            Self::Crc => "received FPDU has a wrong CRC",
            Self::Marker => "marker and ULPDU_Length do not agree",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MpaError, StartupFault};

    /// Covers: MPA-5044-8-05
    #[test]
    fn full_operation_faults_have_the_codes_of_section_8() {
        assert_eq!(MpaError::Closed.code(), 0x01);
        assert_eq!(MpaError::Crc.code(), 0x02);
        assert_eq!(MpaError::Marker.code(), 0x03);
    }

    /// Covers: EMPA-6581-8-01
    #[test]
    fn startup_faults_have_the_codes_of_rfc_6581() {
        assert_eq!(StartupFault::Local.code(), 0x05);
        assert_eq!(StartupFault::InsufficientIrd.code(), 0x06);
        assert_eq!(StartupFault::NoMatchingRtr.code(), 0x07);
    }
}
