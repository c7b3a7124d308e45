// SPDX-License-Identifier: MIT OR Apache-2.0

//! One connection of a device under attack, and what its peer may reach.

use iwarp::cm::ConnectParams;
use iwarp::{Access, MemoryRegion, ProtectionDomain};
use iwarp_proto::rdmap::wire::{Opcode, ReadRequest};

use super::pages::{PAGE, Page};
use super::raw::{Raw, Startup, request};
use super::station::Station;
use super::{End, all_access};

/// The octet that the page holds at first.
pub const FILL: u8 = 0xa5;
/// The grant in the middle of the page.
pub const PART: std::ops::Range<usize> = 1024..3072;
/// Bytes of each posted receive.
pub const RECEIVE: usize = 64;
/// Bytes of the Read that waits for its answer.
pub const READ: usize = 32;

/// A connection whose peer is raw, with a Read outstanding and two receives posted.
pub struct Victim {
    pub raw: Raw,
    pub end: End,
    pub grants: Grants,
    /// The Read Request that waits.
    pub asked: ReadRequest,
    pub receives: MemoryRegion,
    pub sink: MemoryRegion,
}

/// The regions that the peer may reach, and those that it may not. The regions go before the page.
pub struct Grants {
    pub whole: MemoryRegion,
    pub part: MemoryRegion,
    pub for_reading: MemoryRegion,
    pub for_writing: MemoryRegion,
    pub local: MemoryRegion,
    pub foreign: MemoryRegion,
    _other_pd: ProtectionDomain,
    pub page: Page,
}

impl Grants {
    pub fn new(end: &End) -> Self {
        let page = Page::new(FILL);
        let every = all_access();
        let other_pd = end.device.alloc_pd();
        let writing = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Self {
            whole: page.register(&end.pd, 0..PAGE, every),
            part: page.register(&end.pd, PART, every),
            for_reading: page.register(&end.pd, 0..PAGE, Access::REMOTE_READ),
            for_writing: page.register(&end.pd, 0..PAGE, writing),
            local: page.register(&end.pd, 0..PAGE, Access::LOCAL_WRITE),
            foreign: page.register(&other_pd, 0..PAGE, every),
            _other_pd: other_pd,
            page,
        }
    }

    pub fn untouched(&self) {
        assert!(self.page.octets().iter().all(|octet| *octet == FILL), "memory was touched");
    }
}

impl Victim {
    pub fn new(station: &Station) -> Self {
        Self::with(station, &request())
    }

    /// The peer asks for a connection in this way.
    pub fn with(station: &Station, request: &Startup) -> Self {
        let (end, mut raw, _) = station.accept(request, &ConnectParams::default());
        raw.greet();
        let grants = Grants::new(&end);
        let (receives, sink) = (end.region(2 * RECEIVE), end.region(READ));
        end.post_recv(1, &[receives.sge(0, RECEIVE)]);
        end.post_recv(2, &[receives.sge(RECEIVE, RECEIVE)]);
        end.read(3, sink.whole(), &grants.part, 0);
        let (_, asked) = raw.expect(Opcode::ReadRequest);
        let asked = ReadRequest::parse(&asked).unwrap();
        Self { raw, end, grants, asked, receives, sink }
    }
}
