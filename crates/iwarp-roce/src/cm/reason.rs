// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reasons for which a connection is refused.

use core::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The reason of a REJ.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum RejectReason {
            $(#[doc = $text] $(#[$doc])* $name,)*
            /// A reason without a name here.
            Other(u16),
        }

        impl RejectReason {
            /// All reasons with names.
            #[cfg(test)]
            const NAMED: &'static [Self] = &[$(Self::$name,)*];

            /// Its number; the status of `RDMA_CM_EVENT_REJECTED` (ROCE-158).
            pub const fn code(self) -> u16 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(code) => code,
                }
            }

            /// The reason with that number.
            pub const fn from_code(code: u16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for RejectReason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Other(code) => write!(f, "the peer refused with reason {code}"),
                }
            }
        }
    };
}

reasons! {
    NoQueuePair = 1, "the peer has no queue pair left";
    NoEndToEndContext = 2, "the peer has no end-to-end context left";
    NoResources = 3, "the peer has no resources left";
    Timeout = 4, "the peer gave up waiting for an answer";
    Unsupported = 5, "the peer does not support what was asked for";
    InvalidCommId = 6, "the peer does not know the connection";
    InvalidCommInstance = 7, "the peer does not know this instance of the connection";
    InvalidServiceId = 8, "nobody listens on that port";
    InvalidTransport = 9, "the listener takes another type of queue pair";
    StaleConnection = 10, "the peer still holds an old connection of the same queue pair";
    NoReliableDatagrams = 11, "the peer has no reliable datagram channel";
    InvalidGid = 12, "the peer does not have that address";
    InvalidLid = 13, "the peer does not have that LID";
    InvalidServiceLevel = 14, "the peer does not take that service level";
    InvalidTrafficClass = 15, "the peer does not take that traffic class";
    InvalidHopLimit = 16, "the peer does not take that hop limit";
    InvalidPacketRate = 17, "the peer does not take that packet rate";
    InvalidAlternateGid = 18, "the peer does not have that alternate address";
    InvalidAlternateLid = 19, "the peer does not have that alternate LID";
    InvalidAlternateServiceLevel = 20, "the peer does not take that alternate service level";
    InvalidAlternateTrafficClass = 21, "the peer does not take that alternate traffic class";
    InvalidAlternateHopLimit = 22, "the peer does not take that alternate hop limit";
    InvalidAlternatePacketRate = 23, "the peer does not take that alternate packet rate";
    ManagerRedirected = 24, "the peer's connection manager is elsewhere";
    PortRedirected = 25, "the service is on another port of the peer";
    InvalidMtu = 26, "the path MTU is larger than the peer can have";
    InsufficientResources = 27, "the peer wants more Reads and Atomics under way than it may have";
    Consumer = 28, "the peer's program refused";
    InvalidRnrRetry = 29, "the peer does not take that count of RNR retries";
    DuplicateCommId = 30, "the peer has a connection of that id already";
    InvalidClassVersion = 31, "the peer has another version of the connection manager";
    InvalidFlowLabel = 32, "the peer does not take that flow label";
    InvalidAlternateFlowLabel = 33, "the peer does not take that alternate flow label";
    VendorOption = 35, "the peer does not take the vendor's options";
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::RejectReason;

    #[test]
    fn every_code_is_one_reason() {
        for code in 0..100 {
            assert_eq!(RejectReason::from_code(code).code(), code);
            assert!(!RejectReason::from_code(code).to_string().is_empty());
        }
        assert_eq!(RejectReason::NAMED.len(), 34);
        assert_eq!(RejectReason::from_code(28), RejectReason::Consumer);
        assert_eq!(RejectReason::from_code(99).to_string(), "the peer refused with reason 99");
    }
}
