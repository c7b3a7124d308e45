// SPDX-License-Identifier: MIT OR Apache-2.0

//! Service ids.

use iwarp_types::PortSpace;

/// Service id: 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service at a port.
    pub const fn new(space: PortSpace, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// Its port space and port; `None` for service ids that `rdma_cm` does not make.
    pub fn port(self) -> Option<(PortSpace, u16)> {
        let space = PortSpace::ALL.into_iter().find(|space| self.0 >> 16 == *space as u64)?;
        Some((space, self.0 as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: ROCE-151
    #[test]
    fn a_service_is_a_port_space_and_a_port() {
        let service = ServiceId::new(PortSpace::Tcp, 7174);
        assert_eq!(service, ServiceId(0x0000_0000_0106_1c06));
        assert_eq!(service.port(), Some((PortSpace::Tcp, 7174)));
        assert_eq!(ServiceId::new(PortSpace::Udp, 7174), ServiceId(0x0111_1c06));
        assert_eq!(ServiceId(0x013f_0001).port(), Some((PortSpace::Ib, 1)));
        assert_eq!(ServiceId(0x0002_0001).port(), Some((PortSpace::Ipoib, 1)));
        assert_eq!(ServiceId(0x1_0106_1c06).port(), None);
        assert_eq!(ServiceId(0).port(), None);
    }
}
