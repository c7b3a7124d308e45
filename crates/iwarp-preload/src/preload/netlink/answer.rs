// SPDX-License-Identifier: MIT OR Apache-2.0

//! The answer to a request, as `rdma_nl_rcv` and `nldev.c` of Linux give it.

use super::device::Device;
use super::list::{self, Kind, List};
use super::numbers::*;
use super::read::Message;
use super::row::Row;
use super::write::Datagram;

/// The facts that there are to tell.
pub trait Facts {
    /// The device with this index; they are numbered from 0 on without gaps.
    fn device(&self, index: u32) -> Option<Device<'_>>;

    /// Name and value of a counter of a device's port; they too have places from 0 on.
    fn counter(&self, device: &Device<'_>, port: u32, place: usize) -> Option<(&[u8], u64)>;

    /// Numbers of a device's objects, in the order of [`OBJECTS`].
    fn objects(&self, device: &Device<'_>) -> [u64; OBJECTS.len()];

    /// Calls `visit` with each of a device's objects, until it is false.
    fn each(&self, device: &Device<'_>, visit: &mut dyn FnMut(&Listed) -> bool);
}

/// An object of a live process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The number by which it is known, which is not 0. Queue pairs have another one as well.
    pub number: u32,
    /// The number of the process.
    pub process: u32,
    /// Objects that hold on to it.
    pub users: u64,
    /// The rest.
    pub row: Row,
}

/// Kinds of objects, by the names that programs print: protection domains, completion queues, queue
/// pairs, identifiers of the connection manager, memory regions, contexts, shared receive queues.
pub const OBJECTS: [&[u8]; 7] = [b"pd", b"cq", b"qp", b"cm_id", b"mr", b"ctx", b"srq"];

/// The network namespaces share the devices.
const SHARED: u8 = 1;
/// `IBV_PORT_ACTIVE`.
const ACTIVE: u8 = 4;
const LINK_UP: u8 = 5;
/// `RDMA_COUNTER_MODE_NONE`.
const NO_MODE: u32 = 0;

/// Answers the requests in a datagram that came from the port `port`, by datagrams for which it
/// calls `send`. It stops where that is false.
pub fn answer(
    datagram: &[u8],
    port: u32,
    facts: &impl Facts,
    send: impl FnMut(&[u8]) -> bool,
) -> bool {
    let mut answer = Answer { out: Datagram::new(), port, facts, send, sent: true };
    let mut rest = datagram;
    while let Some((request, behind)) = Message::first(rest) {
        rest = behind;
        answer.request(&request);
    }
    answer.sent
}

struct Answer<'a, F, S> {
    out: Datagram,
    port: u32,
    facts: &'a F,
    send: S,
    /// True as long as all went out.
    sent: bool,
}

impl<'a, F: Facts, S: FnMut(&[u8]) -> bool> Answer<'a, F, S> {
    fn request(&mut self, request: &Message<'_>) {
        let is_one = request.flags & NLM_F_REQUEST != 0 && request.kind >= NLMSG_MIN_TYPE;
        let outcome = if is_one { self.outcome(request) } else { Ok(()) };
        let is_dump = is_one && request.flags & NLM_F_DUMP != 0;
        match outcome {
            // The end of a list tells what went wrong with it; where there is no list, an error.
            Err(errno) if !is_dump || !can_dump(request.kind) => self.acknowledge(request, errno),
            _ if is_dump => self.done(request, outcome.err().unwrap_or(0)),
            _ if request.flags & NLM_F_ACK != 0 => self.acknowledge(request, 0),
            _ => {}
        }
        self.flush();
    }

    fn outcome(&mut self, request: &Message<'_>) -> Result<(), i32> {
        let command = command(request.kind).ok_or(EINVAL)?;
        if request.flags & NLM_F_DUMP != 0 {
            if can_dump(request.kind) { self.dump(request, command) } else { Err(EINVAL) }
        } else {
            self.one(request, command)
        }
    }

    /// Answers a request for one thing.
    fn one(&mut self, request: &Message<'_>, command: u16) -> Result<(), i32> {
        match command {
            CMD_GET => {
                let device = self.device(request)?;
                self.message(request, |out| describe(out, &device))
            }
            CMD_PORT_GET => {
                let (device, port) = self.port(request)?;
                self.message(request, |out| describe_port(out, &device, port))
            }
            CMD_SYS_GET => self.message(request, |out| {
                out.u8(SYS_ATTR_NETNS_MODE, SHARED);
                out.u8(SYS_ATTR_COPY_ON_FORK, 1);
            }),
            CMD_RES_GET => {
                let device = self.device(request)?;
                self.summary(request, &device)
            }
            CMD_STAT_GET => self.statistic(request),
            _ => match Kind::of(command) {
                Some(kind) => self.object(request, kind),
                // 0 and 8 are no commands.
                None if matches!(command, 1..=7 | 9..=CMD_MONITOR) => Err(EOPNOTSUPP),
                None => Err(EINVAL),
            },
        }
    }

    /// Answers a request for all there is.
    fn dump(&mut self, request: &Message<'_>, command: u16) -> Result<(), i32> {
        match command {
            CMD_GET => {
                self.all(|answer, device| answer.message(request, |out| describe(out, device)))
            }
            CMD_RES_GET => self.all(|answer, device| answer.summary(request, device)),
            CMD_PORT_GET => {
                let device = self.device(request)?;
                for port in 1..=device.ports.count() {
                    self.message(request, |out| describe_port(out, &device, port))?;
                }
                Ok(())
            }
            // No queue pair and no region has counters of its own.
            CMD_STAT_GET => match request.needed(ATTR_STAT_RES)? as u16 {
                ATTR_RES_QP | ATTR_RES_MR => self.device(request).map(|_| ()),
                _ => Err(EINVAL),
            },
            _ => match Kind::of(command) {
                Some(kind) => self.list(request, kind),
                None => Err(EINVAL),
            },
        }
    }

    /// Tells of one object, by its number.
    fn object(&mut self, request: &Message<'_>, kind: Kind) -> Result<(), i32> {
        let (facts, device) = (self.facts, self.device(request)?);
        let (number, mut found) = (request.needed(kind.number)?, None);
        facts.each(&device, &mut |listed| {
            if kind.has(listed) && kind.number_of(listed) == number {
                found = Some(*listed);
            }
            found.is_none()
        });
        let listed = found.ok_or(ENOENT)?;
        self.message(request, |out| {
            handle(out, &device);
            list::describe(out, facts, &device, &listed);
        })
    }

    /// Lists the objects of a kind, in as many messages as it takes.
    fn list(&mut self, request: &Message<'_>, kind: Kind) -> Result<(), i32> {
        let (facts, device) = (self.facts, self.device(request)?);
        let of_port = request.number(ATTR_PORT_INDEX)?;
        if of_port.is_some_and(|port| !device.ports.has(port)) {
            return Err(EINVAL);
        }
        let mut begun: Option<List> = None;
        facts.each(&device, &mut |listed| {
            if !kind.has(listed) || !list::is_of_port(listed, of_port) {
                return true;
            }
            // An object that does not fit is the first of the next datagram.
            for _ in 0..2 {
                let (out, port) = (&mut self.out, self.port);
                let mut list = begun.take().unwrap_or_else(|| {
                    let mark = out.begin(request.kind, NLM_F_MULTI, request.sequence, port);
                    handle(out, &device);
                    List::begin(out, mark, kind)
                });
                if list.add(out, kind, |out| list::describe(out, facts, &device, listed)) {
                    begun = Some(list);
                    break;
                }
                self.flush();
            }
            self.sent
        });
        if let Some(list) = begun {
            list.end(&mut self.out);
        }
        Ok(())
    }

    fn all(
        &mut self,
        mut each: impl FnMut(&mut Self, &Device<'_>) -> Result<(), i32>,
    ) -> Result<(), i32> {
        let facts = self.facts;
        let mut index = 0_u32;
        while self.sent
            && let Some(device) = facts.device(index)
        {
            each(self, &device)?;
            index = index.wrapping_add(1);
        }
        Ok(())
    }

    fn summary(&mut self, request: &Message<'_>, device: &Device<'_>) -> Result<(), i32> {
        let counts = self.facts.objects(device);
        self.message(request, |out| {
            handle(out, device);
            let table = out.open(ATTR_RES_SUMMARY);
            for (name, count) in OBJECTS.iter().zip(counts) {
                let entry = out.open(ATTR_RES_SUMMARY_ENTRY);
                out.text(ATTR_RES_SUMMARY_ENTRY_NAME, name);
                out.u64(ATTR_RES_SUMMARY_ENTRY_CURR, count);
                out.close(entry);
            }
            out.close(table);
        })
    }

    fn statistic(&mut self, request: &Message<'_>) -> Result<(), i32> {
        let facts = self.facts;
        let object = request.number(ATTR_STAT_RES)?;
        match object.map(|object| object as u16) {
            None => {
                let (device, port) = self.port(request)?;
                self.message(request, |out| {
                    handle(out, &device);
                    out.u32(ATTR_PORT_INDEX, port);
                    let table = out.open_nested(ATTR_STAT_HWCOUNTERS);
                    let mut place = 0_usize;
                    while let Some((name, value)) = facts.counter(&device, port, place) {
                        let entry = out.open_nested(ATTR_STAT_HWCOUNTER_ENTRY);
                        out.text(ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
                        out.u64(ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value);
                        out.close(entry);
                        place = place.wrapping_add(1);
                    }
                    out.close(table);
                })
            }
            // The mode in which queue pairs have counters of their own.
            Some(ATTR_RES_QP) => {
                request.needed(ATTR_STAT_MODE)?;
                let (device, port) = self.port(request)?;
                self.message(request, |out| {
                    handle(out, &device);
                    out.u32(ATTR_PORT_INDEX, port);
                    out.u32(ATTR_STAT_MODE, NO_MODE);
                })
            }
            Some(ATTR_RES_MR) => Err(EOPNOTSUPP),
            Some(_) => Err(EINVAL),
        }
    }

    /// The device that a request names.
    fn device(&self, request: &Message<'_>) -> Result<Device<'a>, i32> {
        self.facts.device(request.needed(ATTR_DEV_INDEX)?).ok_or(EINVAL)
    }

    /// Likewise, and the number of its port that it names as well.
    fn port(&self, request: &Message<'_>) -> Result<(Device<'a>, u32), i32> {
        let device = self.device(request)?;
        let port = request.needed(ATTR_PORT_INDEX)?;
        if device.ports.has(port) { Ok((device, port)) } else { Err(EINVAL) }
    }

    /// Writes a message into the datagram, or into the next one where it does not fit.
    fn message(&mut self, request: &Message<'_>, write: impl Fn(&mut Datagram)) -> Result<(), i32> {
        let flags = if request.flags & NLM_F_DUMP != 0 { NLM_F_MULTI } else { 0 };
        self.whole(request.kind, flags, request.sequence, write)?;
        if flags == 0 {
            // As Linux does: an acknowledgement comes in a datagram of its own.
            self.flush();
        }
        Ok(())
    }

    fn whole(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: u32,
        write: impl Fn(&mut Datagram),
    ) -> Result<(), i32> {
        for _ in 0..2 {
            let mark = self.out.begin(kind, flags, sequence, self.port);
            write(&mut self.out);
            self.out.end(mark);
            if !self.out.is_full() {
                return Ok(());
            }
            self.out.cut(mark);
            self.flush();
        }
        Err(EMSGSIZE)
    }

    fn acknowledge(&mut self, request: &Message<'_>, errno: i32) {
        let header = request.header;
        // It fits: a datagram that is empty has room for it.
        let _ = self.whole(NLMSG_ERROR, NLM_F_CAPPED, request.sequence, |out| {
            out.i32(errno.wrapping_neg());
            out.header(header);
        });
    }

    fn done(&mut self, request: &Message<'_>, errno: i32) {
        // As above.
        let _ = self.whole(NLMSG_DONE, NLM_F_MULTI, request.sequence, |out| {
            out.i32(errno.wrapping_neg());
        });
    }

    fn flush(&mut self) {
        if let Some(octets) = self.out.written()
            && self.sent
        {
            self.sent = (self.send)(octets);
        }
        self.out.clear();
    }
}

/// The command, where the client is the one whose commands these are.
const fn command(kind: u16) -> Option<u16> {
    if kind >> 10 == RDMA_NL_NLDEV { Some(kind & 0x3ff) } else { None }
}

/// True if all there is can be asked for by such a request.
fn can_dump(kind: u16) -> bool {
    command(kind).is_some_and(|command| {
        matches!(command, CMD_GET | CMD_PORT_GET | CMD_RES_GET | CMD_STAT_GET)
            || Kind::of(command).is_some()
    })
}

/// The names of a device, which all answers about it begin with.
fn handle(out: &mut Datagram, device: &Device<'_>) {
    out.u32(ATTR_DEV_INDEX, device.index);
    out.text(ATTR_DEV_NAME, device.name);
}

fn describe(out: &mut Datagram, device: &Device<'_>) {
    handle(out, device);
    // The number of its ports.
    out.u32(ATTR_PORT_INDEX, device.ports.count());
    out.u64(ATTR_CAP_FLAGS, device.flags);
    out.text(ATTR_FW_VERSION, device.firmware);
    out.u64(ATTR_NODE_GUID, device.node_guid);
    out.u64(ATTR_SYS_IMAGE_GUID, device.system_guid);
    out.u8(ATTR_DEV_NODE_TYPE, device.node_type);
    out.text(ATTR_DEV_PROTOCOL, device.protocol);
}

fn describe_port(out: &mut Datagram, device: &Device<'_>, port: u32) {
    handle(out, device);
    out.u32(ATTR_PORT_INDEX, port);
    out.u8(ATTR_PORT_STATE, ACTIVE);
    out.u8(ATTR_PORT_PHYS_STATE, LINK_UP);
    if let Some((index, name)) = device.ports.interface(port) {
        out.u32(ATTR_NDEV_INDEX, index);
        out.text(ATTR_NDEV_NAME, name);
    }
}
