// SPDX-License-Identifier: MIT OR Apache-2.0

//! A network around another, whose connections are wrapped one by one.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Acceptor, Descriptors, IoPart, IoPartMut, Ipv6Listen, Network, Owner, Port, Readiness,
    Reservation, Sharing, Spare,
};

/// Wraps the connections of a network, begun by either end.
pub(super) trait Wrap: Clone + Send + Sync + Debug + 'static {
    fn wrap(&self, port: Box<dyn Port>) -> io::Result<Box<dyn Port>>;
}

/// The object that `inner` makes, with each connection wrapped.
#[derive(Debug)]
pub(super) struct Around<I: ?Sized, W> {
    wrap: W,
    inner: I,
}

pub(super) fn around(network: Arc<dyn Network>, wrap: impl Wrap) -> Arc<dyn Network> {
    Arc::new(Around { wrap, inner: network })
}

impl<I, W: Wrap> Around<I, W> {
    fn acceptor(&self, inner: Box<dyn Acceptor>) -> Box<dyn Acceptor> {
        Box::new(Around { wrap: self.wrap.clone(), inner })
    }
}

impl<W: Wrap> Network for Around<Arc<dyn Network>, W> {
    fn reserve(
        &self,
        addr: SocketAddr,
        ipv6: Ipv6Listen,
        sharing: Sharing,
    ) -> io::Result<Box<dyn Reservation>> {
        let inner = self.inner.reserve(addr, ipv6, sharing)?;
        Ok(Box::new(Around { wrap: self.wrap.clone(), inner }))
    }

    fn reserve_beside_program(
        &self,
        addr: SocketAddr,
        ipv6: Ipv6Listen,
    ) -> io::Result<Box<dyn Reservation>> {
        let inner = self.inner.reserve_beside_program(addr, ipv6)?;
        Ok(Box::new(Around { wrap: self.wrap.clone(), inner }))
    }

    fn connect(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        traffic_class: Option<u8>,
    ) -> io::Result<Box<dyn Port>> {
        self.wrap.wrap(self.inner.connect(local, peer, traffic_class)?)
    }

    fn looped(&self, ip: IpAddr, scope_id: u32) -> io::Result<Box<dyn Port>> {
        self.wrap.wrap(self.inner.looped(ip, scope_id)?)
    }

    fn source_for(&self, peer: SocketAddr) -> io::Result<IpAddr> {
        self.inner.source_for(peer)
    }

    fn owner_of(&self, theirs: SocketAddr, ours: SocketAddr) -> io::Result<Owner> {
        self.inner.owner_of(theirs, ours)
    }
}

impl<W: Wrap> Reservation for Around<Box<dyn Reservation>, W> {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.inner.set_traffic_class(class)
    }

    fn bequeath(&self) {
        self.inner.bequeath();
    }

    fn admit_program(&self) {
        self.inner.admit_program();
    }

    fn inherit(&self) -> io::Result<Box<dyn Reservation>> {
        Ok(Box::new(Around { wrap: self.wrap.clone(), inner: self.inner.inherit()? }))
    }

    fn listen(
        self: Box<Self>,
        backlog: u32,
    ) -> Result<Box<dyn Acceptor>, (Box<dyn Reservation>, io::Error)> {
        let Self { wrap, inner } = *self;
        match inner.listen(backlog) {
            Ok(inner) => Ok(Box::new(Around { wrap, inner })),
            Err((inner, error)) => Err((Box::new(Around { wrap, inner }), error)),
        }
    }

    fn listen_at(&self, ip: IpAddr, scope_id: u32, backlog: u32) -> io::Result<Box<dyn Acceptor>> {
        Ok(self.acceptor(self.inner.listen_at(ip, scope_id, backlog)?))
    }

    fn connect(
        self: Box<Self>,
        peer: SocketAddr,
        traffic_class: Option<u8>,
    ) -> io::Result<Box<dyn Port>> {
        self.wrap.wrap(self.inner.connect(peer, traffic_class)?)
    }
}

impl<W: Wrap> Acceptor for Around<Box<dyn Acceptor>, W> {
    fn accept(&self) -> io::Result<Box<dyn Port>> {
        self.wrap.wrap(self.inner.accept()?)
    }

    fn refuse_one(&self, spare: &mut Spare) -> io::Result<()> {
        self.inner.refuse_one(spare)
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.inner.descriptors()
    }

    fn inherit(&self) -> io::Result<Box<dyn Acceptor>> {
        Ok(self.acceptor(self.inner.inherit()?))
    }

    fn end(&self) {
        self.inner.end();
    }
}

/// The calls of a wrapper's [`Port`] that go to its inner port unchanged.
macro_rules! pass_on {
    ($field:ident) => {
        fn shutdown_write(&self) -> std::io::Result<()> {
            self.$field.shutdown_write()
        }

        fn ends(&self) -> $crate::port::Ends {
            self.$field.ends()
        }

        fn descriptors(&self) -> $crate::port::Descriptors<'_> {
            self.$field.descriptors()
        }

        fn begin(&mut self, settings: &$crate::port::Settings<'_>) -> std::io::Result<()> {
            self.$field.begin(settings)
        }

        fn set_waker(&self, waker: $crate::port::Waker) {
            self.$field.set_waker(waker);
        }

        $crate::port::around::pass_on_rest!($field);
    };
}

/// The calls with which no wrapper of ours has anything to do.
macro_rules! pass_on_rest {
    ($field:ident) => {
        fn reset_on_close(&self) {
            self.$field.reset_on_close();
        }

        fn take_error(&self) -> std::io::Result<()> {
            self.$field.take_error()
        }

        fn max_segment(&self) -> usize {
            self.$field.max_segment()
        }

        fn set_traffic_class(&self, class: u8) -> std::io::Result<()> {
            self.$field.set_traffic_class(class)
        }

        fn limit_unsent(&self, octets: usize) {
            self.$field.limit_unsent(octets);
        }

        fn vitals(&self) -> std::io::Result<Option<$crate::port::Vitals>> {
            self.$field.vitals()
        }

        fn ask_within(&self, pause: std::time::Duration) {
            self.$field.ask_within(pause);
        }

        fn ask_idle(&self, patience: Option<std::time::Duration>) {
            self.$field.ask_idle(patience);
        }

        fn bound_silence(&self, patience: Option<std::time::Duration>) {
            self.$field.bound_silence(patience);
        }
    };
}

pub(super) use {pass_on, pass_on_rest};

/// Most bytes that are looked at in one go.
const MOST: usize = 64 * 1024;

/// Bytes that came from the inner port and have not gone on.
#[derive(Debug, Default)]
pub(super) struct Held {
    octets: Mutex<Vec<u8>>,
    /// There are some: asked without the lock, which a receiver holds while it wakes the peer.
    any: AtomicBool,
}

impl Held {
    /// Receives from `port`, has `look` look at what came, and passes `most` bytes of it on; the
    /// others wait.
    pub(super) fn receive(
        &self,
        port: &dyn Port,
        parts: &mut [IoPartMut<'_>],
        most: usize,
        look: impl FnOnce(&[u8]),
    ) -> io::Result<usize> {
        let mut held = self.octets.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() {
            let mut octets = vec![0; MOST];
            let came = port.recv(&mut [IoPartMut::new(&mut octets)])?;
            octets.truncate(came);
            look(&octets);
            if came == 0 {
                return Ok(0);
            }
            *held = octets;
            self.any.store(true, Ordering::Release);
        }
        // If the program's memory is gone they are received again, to another place.
        let passed = IoPartMut::scatter(parts, &held[..held.len().min(most)])?;
        held.drain(..passed);
        self.any.store(!held.is_empty(), Ordering::Release);
        Ok(passed)
    }

    /// Input if bytes are held, even if the inner port has none.
    pub(super) fn readiness(&self) -> Readiness {
        if self.is_empty() { Readiness::empty() } else { Readiness::INPUT }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }
}

/// Copies what is to be sent, `most` bytes of it at most, so that what is looked at is what goes
/// out.
pub(super) fn gathered(parts: &[IoPart<'_>], most: usize) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    IoPart::gather(parts, &mut octets, most.min(MOST))?;
    Ok(octets)
}
