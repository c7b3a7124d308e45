// SPDX-License-Identifier: MIT OR Apache-2.0

//! A datagram network around another, whose ports are wrapped one by one.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{DatagramNetwork, DatagramPort, DatagramSettings, Shared};

/// Wraps the ports of a datagram network.
pub(super) trait Wrap: Send + Sync + Debug + 'static {
    /// The settings with which the inner port is made, for those that are asked for.
    fn settings(&self, asked: &DatagramSettings) -> DatagramSettings;

    fn wrap(&self, port: Box<dyn DatagramPort>) -> Box<dyn DatagramPort>;
}

pub(super) fn around(
    network: Arc<dyn DatagramNetwork>,
    wrap: impl Wrap,
) -> Arc<dyn DatagramNetwork> {
    Arc::new(Around { network, wrap })
}

#[derive(Debug)]
struct Around<W> {
    network: Arc<dyn DatagramNetwork>,
    wrap: W,
}

impl<W: Wrap> DatagramNetwork for Around<W> {
    fn open(
        &self,
        addr: SocketAddr,
        settings: &DatagramSettings,
    ) -> io::Result<Box<dyn DatagramPort>> {
        Ok(self.wrap.wrap(self.network.open(addr, &self.wrap.settings(settings))?))
    }

    fn share(&self, settings: &DatagramSettings) -> io::Result<Shared> {
        let (port, share) = self.network.share(&self.wrap.settings(settings))?;
        Ok((self.wrap.wrap(port), share))
    }

    fn is_of_process(&self) -> bool {
        self.network.is_of_process()
    }

    fn open_group(&self, group: SocketAddr, at: IpAddr) -> io::Result<Box<dyn DatagramPort>> {
        Ok(self.wrap.wrap(self.network.open_group(group, at)?))
    }
}

/// The calls of a wrapper's [`DatagramPort`] that go to its inner port unchanged.
macro_rules! pass_on {
    ($field:ident) => {
        fn local_addr(&self) -> std::net::SocketAddr {
            self.$field.local_addr()
        }

        fn numbering(&self) -> iwarp_types::Numbering {
            self.$field.numbering()
        }

        fn join(&self, group: std::net::IpAddr) -> std::io::Result<()> {
            self.$field.join(group)
        }

        fn leave(&self, group: std::net::IpAddr) {
            self.$field.leave(group);
        }

        fn join_at(&self, group: std::net::IpAddr, interfaces: &[u32]) -> std::io::Result<()> {
            self.$field.join_at(group, interfaces)
        }

        fn leave_but(&self, group: std::net::IpAddr, interfaces: &[u32]) {
            self.$field.leave_but(group, interfaces);
        }

        fn leave_by(&self, interfaces: &[String]) {
            self.$field.leave_by(interfaces);
        }

        fn has_input(&self) -> std::io::Result<bool> {
            self.$field.has_input()
        }

        fn descriptors(&self) -> $crate::port::Descriptors<'_> {
            self.$field.descriptors()
        }

        fn readiness(&self) -> $crate::port::Readiness {
            self.$field.readiness()
        }

        fn set_waker(&self, waker: $crate::port::Waker) {
            self.$field.set_waker(waker);
        }

        fn counters(&self) -> $crate::port::DatagramCounters {
            self.$field.counters()
        }

        fn overruns(&self) -> u64 {
            self.$field.overruns()
        }

        fn self_test(&self) -> std::io::Result<$crate::port::Findings> {
            self.$field.self_test()
        }

        fn leaves_as_meant(
            &self,
            path: &iwarp_types::Path,
            packet: &[u8],
        ) -> std::io::Result<Option<bool>> {
            self.$field.leaves_as_meant(path, packet)
        }
    };
}

pub(super) use pass_on;
