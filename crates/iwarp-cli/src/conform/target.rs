// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program at the other end: lends memory, and answers what it receives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, channel};
use std::thread::Scope;
use std::time::Duration;

use anyhow::{Context, Result};
use iwarp::cm::{ConnectError, ConnectParams, Connection, Listener, connect};
use iwarp::{
    Access, Buffer, Device, Extensions, MemoryRegion, Options, Payload, ProtectionDomain, SendOp,
    SendRequest, Stag, TaggedOffset, WcStatus,
};
use iwarp_conform::order::{self, CANNOT, DONE, Request};
use iwarp_conform::peer::{Lent, Offer, pattern};
use iwarp_kit::lines;

use super::orders::{has_bytes, operation};
use crate::completions::{End, QUIET, WaitError};

/// Bytes of each piece of memory that is lent.
const LENT: usize = 65_536;
/// Receives that are posted, and bytes of each.
const RECEIVES: usize = 4;
const ROOM: usize = 256;
/// A Send of these bytes asks for no more receives than are posted.
const NO_MORE: &[u8] = b"no more receives";
/// Reads that are answered, or under way, at a time.
const DEPTH: u16 = 4;
/// The time that a tester may take to answer a Request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves any number of testers, until killed.
pub(super) fn serve(addrs: &[SocketAddr]) -> Result<()> {
    let device = open()?;
    let listener =
        Listener::bind(&device, addrs).with_context(|| format!("cannot listen at {}", addrs[0]))?;
    eprintln!("listening on {}", listener.local_addr().unwrap_or(addrs[0]));
    std::thread::scope(|scope| {
        loop {
            let incoming = listener.accept(None)?.context("no tester came")?;
            let lender = Lender::new(&device)?;
            scope.spawn(move || {
                // If it fails, the tester has made it fail on purpose.
                if let Ok(connection) = incoming.accept(&lender.end.qp, &lender.params()) {
                    lender.attend(scope, &connection);
                }
            });
        }
    })
}

/// Connects to a tester again and again, until none listens any more.
pub(super) fn call(addr: SocketAddr) -> Result<()> {
    let device = open()?;
    std::thread::scope(|scope| {
        loop {
            let lender = Lender::new(&device)?;
            match connect(&device, addr, &lender.end.qp, &lender.params(), PATIENCE) {
                Ok(connection) => {
                    lender.speak_first();
                    lender.attend(scope, &connection);
                }
                Err(ConnectError::Unreachable(_)) => return Ok(()),
                // The tester has done this on purpose.
                Err(_) => {}
            }
        }
    })
}

/// One connection for each case: none is made for a second try. A tester that orders an operation
/// of RFC 7306 has RFC 7306, and does not say so by a frame of this project's.
fn open() -> Result<Device> {
    let options = Options::new().fall_back(false).extensions(Extensions::Assume);
    Ok(Device::open_with(options)?)
}

/// One connection's memory.
struct Lender {
    end: End,
    lent: Vec<(&'static str, MemoryRegion)>,
    inbox: MemoryRegion,
    _other: ProtectionDomain,
}

impl Lender {
    fn new(device: &Device) -> Result<Self> {
        let end = End::new(device)?;
        let other = device.alloc_pd();
        let all = Access::LOCAL_WRITE | Access::REMOTE;
        let lend = |pd: &ProtectionDomain, access| {
            let buffer = Buffer::new(LENT);
            buffer.write_at(0, &pattern(LENT));
            pd.register(Arc::new(buffer), access)
        };
        let lent = vec![
            ("rw", lend(&end.pd, all)?),
            ("ro", lend(&end.pd, Access::REMOTE_READ)?),
            ("wo", lend(&end.pd, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?),
            ("other", lend(&other, all)?),
        ];
        let inbox = end.pd.allocate(RECEIVES * ROOM, Access::LOCAL_WRITE)?;
        let lender = Self { end, lent, inbox, _other: other };
        for slot in 0..RECEIVES {
            lender.post(slot)?;
        }
        Ok(lender)
    }

    fn params(&self) -> ConnectParams {
        let lent = self.lent.iter().map(|(name, region)| {
            let lent =
                Lent { stag: region.rkey().0, to: region.base().0, len: region.len() as u32 };
            ((*name).to_owned(), lent)
        });
        let offer = Offer { lent: lent.collect(), receives: RECEIVES as u32, room: ROOM as u32 };
        ConnectParams::new().ird(DEPTH).ord(DEPTH).private_data(offer.encode())
    }

    /// Sends a zero-length Write. The tester may not send before the initiator's first FPDU, and if
    /// the library does not ask for the peer's extensions the program has to send it. Its
    /// completion is not waited for, so that the peer is not asked for that either.
    fn speak_first(&self) {
        let op = SendOp::Write { stag: Stag(0), to: TaggedOffset(0) };
        // If it fails, the tester has left.
        let _ = self.end.qp.post_send(&SendRequest::new(QUIET, op, Payload::Sges(&[])));
    }

    fn post(&self, slot: usize) -> Result<()> {
        Ok(self.end.post_recv(receive(slot), self.inbox.sge(slot * ROOM, ROOM))?)
    }

    /// Answers until the connection ends. Work under way may outlive it for a moment, and the next
    /// connection does not wait for that.
    fn attend<'scope>(mut self, scope: &'scope Scope<'scope, '_>, connection: &Connection) {
        let (alive, over) = channel();
        scope.spawn(move || {
            if let Err(error) = self.answer(&over) {
                eprintln!("iwarp conform: {}", lines::reason(&error));
            }
        });
        connection.wait_disconnected(None);
        drop(alive);
    }

    /// Sends back each message that is received. While `over` has a sender the connection is up.
    fn answer(&mut self, over: &Receiver<()>) -> Result<()> {
        const SEND: u64 = u64::MAX;
        let mut more = true;
        let mut posted = RECEIVES;
        for slot in (0..RECEIVES).cycle() {
            let received = match self.end.wait(receive(slot), None) {
                Ok(received) => received,
                Err(WaitError::System(error)) => return Err(error.into()),
                Err(_) => return Ok(()),
            };
            let buffer = self.inbox.buffer().context("memory without a buffer")?;
            let mut len = received.byte_len as usize;
            if let Some(immediate) = received.immediate {
                buffer.write_at(slot * ROOM, &immediate);
                len = immediate.len();
            }
            let mut data = vec![0; len];
            buffer.read_at(slot * ROOM, &mut data);
            if let Some(order) = order::decode(&data, LENT) {
                if self.obey(order).is_err() || self.post(slot).is_err() {
                    return Ok(());
                }
                continue;
            }
            more &= data != NO_MORE;
            posted -= usize::from(!more);
            let sent = self.end.post(SEND, SendOp::SEND, self.inbox.sge(slot * ROOM, len));
            if sent.is_err() || self.end.wait(SEND, None).is_err() {
                return Ok(());
            }
            if more && self.post(slot).is_err() {
                return Ok(());
            }
            if posted == 0 {
                // There is no receive that could say when it is over.
                let _: Result<(), RecvError> = over.recv();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Carries out an order, and says so, or why it cannot.
    fn obey(&mut self, order: Result<Vec<Request>, String>) -> Result<()> {
        const SAID: u64 = 1 << 32;
        let said = match order {
            Ok(requests) => self.carry_out(&requests)?,
            // Its words may be longer than what is sent inline.
            Err(_) => Err("there is no such order".to_owned()),
        };
        let said = said.map_or_else(|why| [CANNOT, why.as_bytes()].concat(), |()| DONE.to_vec());
        self.end.post_inline(SAID, SendOp::SEND, &said)?;
        self.end.wait(SAID, None)?;
        Ok(())
    }

    /// Carries out work requests from or to the memory `rw`, or says why it cannot.
    fn carry_out(&mut self, requests: &[Request]) -> Result<Result<(), String>> {
        const FIRST: u64 = 2 << 32;
        let (_, memory) = &self.lent[0];
        for (number, request) in (FIRST..).zip(requests) {
            let op = operation(request);
            if has_bytes(request) {
                self.end.post(number, op, memory.sge(request.at, request.length))?;
            } else {
                self.end.post_bare(number, op)?;
            }
        }
        for (number, _) in (FIRST..).zip(requests) {
            match self.end.wait(number, None) {
                Ok(_) => {}
                // The request was not sent, and the connection lives.
                Err(WaitError::Failed(op, WcStatus::RemoteInvalidRequest)) => {
                    return Ok(Err(format!("{op:?} is not sent to such a peer")));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Ok(()))
    }
}

fn receive(slot: usize) -> u64 {
    slot as u64 + 1
}
