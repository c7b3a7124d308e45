// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device without threads, and what its program has of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use iwarp::cm::{EventChannel, Id};
use iwarp::port::{Clock, Faults, ManualClock, MemoryNetwork, Network, Platform};
use iwarp::{
    CompletionChannel, CompletionQueue, Device, LocalPath, Options, Personality, ProtectionDomain,
    Turns,
};
use iwarp_os::poll;

use super::pool::Pool;
use crate::choice::Choices;

/// Port at which the program of the first host listens; that of the second listens at the next.
const PORT: u16 = 4791;

/// A completion queue.
pub(super) struct Queue {
    pub(super) cq: CompletionQueue,
    /// Set if it raises events.
    pub(super) has_channel: bool,
}

/// See the [module](self).
pub(super) struct Host {
    pub(super) addr: IpAddr,
    port: u16,
    pub(super) device: Device,
    pub(super) pd: ProtectionDomain,
    pub(super) queues: Vec<Queue>,
    /// Some of its queue pairs have their receives from there.
    pub(super) pool: Option<Pool>,
    pub(super) channel: CompletionChannel,
    pub(super) events: EventChannel,
    pub(super) _listener: Id,
    /// Its program has slept within the library: then arming a queue calls no worker.
    pub(super) has_blocked: bool,
}

/// The things that both devices of a run have in common.
pub(super) struct Common {
    network: MemoryNetwork,
    faults: Option<Faults>,
    pub(super) options: Options,
    /// The ways past TCP that each device would go, if both are on one host.
    local: Option<[LocalPath; 2]>,
}

impl Common {
    pub(super) fn draw(seed: u64, choices: &mut Choices<'_>) -> Self {
        let capacity = choices.pick(&[700, 5_000, 70_000, 256 * 1024]);
        let local = choices.one_in(3).then(|| draw_local(choices));
        let faults = (local.is_none() && choices.one_in(4)).then(|| Faults {
            delayed: choices.pick(&[0, 0, 40]),
            longest_piece: choices.pick(&[100, 1500, 20_000]),
            spared: 24,
            ..Faults::seeded(seed)
        });
        let options = Options::new()
            .personality(choices.pick(&[Personality::Iwarp, Personality::Roce]))
            .crc(choices.below(2) == 0)
            .markers(choices.one_in(8))
            .peer_to_peer(choices.one_in(4))
            .workers(choices.pick(&[1, 1, 2]))
            .mulpdu(choices.pick(&[None, Some(60_000)]));
        let network = MemoryNetwork::new().with_capacity(capacity);
        // Streams without a descriptor are woken, others are in an epoll.
        let network = match local {
            Some(_) => network.with_shared_memory(),
            None if choices.below(2) == 0 => network,
            None => network.with_descriptors(),
        };
        Self { network, faults, options, local }
    }

    /// True if both devices are on one host.
    pub(super) const fn is_one_host(&self) -> bool {
        self.local.is_some()
    }

    /// True if a Send may go before its receive is posted.
    pub(super) fn parks(&self) -> bool {
        self.options.personality == Personality::Roce
    }
}

/// The way of each device: seldom none.
fn draw_local(choices: &mut Choices<'_>) -> [LocalPath; 2] {
    let mut way = || match choices.below(12) {
        0 => LocalPath::Off,
        1..=4 => LocalPath::Rings,
        5 => LocalPath::Share,
        _ => LocalPath::Auto,
    };
    [way(), way()]
}

impl Host {
    pub(super) fn new(
        number: usize,
        common: &Common,
        clock: &ManualClock,
        choices: &mut Choices<'_>,
    ) -> (Self, Turns) {
        let place = if common.is_one_host() { 1 } else { number as u8 + 1 };
        let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, place));
        let host = common.network.host(addr);
        let network: Arc<dyn Network> = match &common.faults {
            Some(faults) => faults.around(host),
            None => host,
        };
        let platform = Platform { network, clock: Clock::from(clock.clone()), datagrams: None };
        let way = common.local.map_or(LocalPath::Off, |ways| ways[number]);
        let options = common.options.clone().local(way);
        let (device, turns) = Device::turned(options, platform).expect("a device can be opened");
        let channel = device.create_comp_channel().expect("descriptors");
        let queues = (0..choices.range(1, 3)).map(|_| {
            let has_channel = !choices.one_in(4);
            let cq = device.create_cq(2048, has_channel.then_some(&channel)).expect("descriptors");
            Queue { cq, has_channel }
        });
        let queues = queues.collect();
        let events = EventChannel::new(&device).expect("descriptors");
        let listener = Id::new(&events).expect("an id");
        let port = PORT + number as u16;
        listener.bind(SocketAddr::new(addr, port)).expect("a free port");
        listener.listen(16).expect("a free port");
        let pd = device.alloc_pd();
        let pool = (choices.below(2) == 0).then(|| Pool::new(&pd));
        let _listener = listener;
        let has_blocked = false;
        let host =
            Self { pool, addr, port, device, pd, queues, channel, events, _listener, has_blocked };
        (host, turns)
    }

    /// True if an event waits in its channel.
    pub(super) fn is_told(&self) -> bool {
        poll::wait_readable([self.channel.as_fd()], Some(Duration::ZERO)).is_ok_and(|[ready]| ready)
    }

    pub(super) const fn listens_at(&self) -> SocketAddr {
        SocketAddr::new(self.addr, self.port)
    }
}
