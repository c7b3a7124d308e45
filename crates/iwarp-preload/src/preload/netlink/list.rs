// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects one by one, as the kernel describes those of a program.

use super::device::Device;
use super::numbers::*;
use super::row::{Id, Object, Pair, Row};
use super::write::{Datagram, Mark};
use super::{Facts, Listed};

/// The kinds that can be listed, in commands and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    command: u16,
    /// The list, and an entry of it.
    table: u16,
    entry: u16,
    /// The number of an object.
    pub(super) number: u16,
}

const fn kind(command: u16, table: u16, entry: u16, number: u16) -> Kind {
    Kind { command, table, entry, number }
}

const KINDS: [Kind; 7] = [
    kind(CMD_RES_QP_GET, ATTR_RES_QP, ATTR_RES_QP_ENTRY, ATTR_RES_LQPN),
    kind(CMD_RES_CM_ID_GET, ATTR_RES_CM_ID, ATTR_RES_CM_ID_ENTRY, ATTR_RES_CM_IDN),
    kind(CMD_RES_CQ_GET, ATTR_RES_CQ, ATTR_RES_CQ_ENTRY, ATTR_RES_CQN),
    kind(CMD_RES_MR_GET, ATTR_RES_MR, ATTR_RES_MR_ENTRY, ATTR_RES_MRN),
    kind(CMD_RES_PD_GET, ATTR_RES_PD, ATTR_RES_PD_ENTRY, ATTR_RES_PDN),
    kind(CMD_RES_CTX_GET, ATTR_RES_CTX, ATTR_RES_CTX_ENTRY, ATTR_RES_CTXN),
    kind(CMD_RES_SRQ_GET, ATTR_RES_SRQ, ATTR_RES_SRQ_ENTRY, ATTR_RES_SRQN),
];

impl Kind {
    /// The kind that a command asks for.
    pub(super) fn of(command: u16) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.command == command)
    }

    /// The number by which an object of this kind is asked for.
    pub(super) fn number_of(self, listed: &Listed) -> u32 {
        match listed.row.object {
            Object::Pair(pair) => pair.number,
            _ => listed.number,
        }
    }

    /// True of an object of this kind.
    pub(super) fn has(self, listed: &Listed) -> bool {
        self.command
            == match listed.row.object {
                Object::Context => CMD_RES_CTX_GET,
                Object::Domain => CMD_RES_PD_GET,
                Object::Completions { .. } => CMD_RES_CQ_GET,
                Object::Pair(_) => CMD_RES_QP_GET,
                Object::Region { .. } => CMD_RES_MR_GET,
                Object::SharedReceives => CMD_RES_SRQ_GET,
                Object::Id(_) => CMD_RES_CM_ID_GET,
            }
    }
}

/// The number of a port, where a process may not have said it.
fn port_of(said: u8) -> u32 {
    said.max(1).into()
}

/// True if an object is listed where those of one port are asked for, as in the kernel: others than
/// queue pairs and ids are on none.
pub(super) fn is_of_port(listed: &Listed, asked: Option<u32>) -> bool {
    let own = match listed.row.object {
        Object::Pair(pair) => pair.port,
        Object::Id(id) => id.port,
        _ => return true,
    };
    asked.is_none_or(|asked| asked == port_of(own))
}

/// A list in a message that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    message: Mark,
    table: Mark,
    is_empty: bool,
}

impl List {
    /// Begins the list in a message, which `message` is.
    pub(super) fn begin(out: &mut Datagram, message: Mark, kind: Kind) -> Self {
        Self { message, table: out.open_nested(kind.table), is_empty: true }
    }

    /// Adds an entry that `write` writes. Where it does not fit, it is left out, and the list ends;
    /// a list without any entry is taken back as a whole.
    pub(super) fn add(
        &mut self,
        out: &mut Datagram,
        kind: Kind,
        write: impl Fn(&mut Datagram),
    ) -> bool {
        let entry = out.open_nested(kind.entry);
        write(out);
        out.close(entry);
        if !out.is_full() {
            self.is_empty = false;
            return true;
        }
        out.cut(if self.is_empty { self.message } else { entry });
        if !self.is_empty {
            self.end(out);
        }
        false
    }

    pub(super) fn end(self, out: &mut Datagram) {
        out.close(self.table);
        out.end(self.message);
    }
}

/// Describes an object.
pub(super) fn describe(
    out: &mut Datagram,
    facts: &impl Facts,
    device: &Device<'_>,
    listed: &Listed,
) {
    let Row { context, domain, object, .. } = listed.row;
    match object {
        Object::Context => {}
        Object::Domain => {
            out.u64(ATTR_RES_USECNT, listed.users);
            out.number(ATTR_RES_PDN, listed.number);
        }
        Object::Completions { cqe } => {
            out.u32(ATTR_RES_CQE, cqe);
            out.u64(ATTR_RES_USECNT, listed.users);
            out.number(ATTR_RES_CQN, listed.number);
        }
        Object::Pair(pair) => {
            describe_pair(out, &pair);
            out.number(ATTR_RES_PDN, domain);
        }
        Object::Region { length } => {
            out.u64(ATTR_RES_MRLEN, length);
            out.number(ATTR_RES_MRN, listed.number);
            out.number(ATTR_RES_PDN, domain);
        }
        Object::SharedReceives => {
            out.number(ATTR_RES_SRQN, listed.number);
            out.u8(ATTR_RES_TYPE, SRQT_BASIC);
            out.number(ATTR_RES_PDN, domain);
            describe_users(out, facts, device, listed.number);
        }
        Object::Id(id) => {
            describe_id(out, &id);
            out.number(ATTR_RES_CM_IDN, listed.number);
        }
    }
    if matches!(object, Object::Context | Object::Domain | Object::Completions { .. }) {
        out.number(ATTR_RES_CTXN, context);
    }
    out.u32(ATTR_RES_PID, listed.process);
}

/// `IB_SRQT_BASIC`.
const SRQT_BASIC: u8 = 0;
/// `IB_MIG_MIGRATED`.
const MIGRATED: u8 = 0;
/// `IB_QPS_RESET`: the queue pair was not told its port yet.
const RESET: u8 = 0;
/// `IB_QPT_RC` and `IB_QPT_UC`.
const CONNECTED: [u8; 2] = [2, 3];

fn describe_pair(out: &mut Datagram, pair: &Pair) {
    if pair.state != RESET {
        out.u32(ATTR_PORT_INDEX, port_of(pair.port));
    }
    out.u32(ATTR_RES_LQPN, pair.number);
    let is_connected = CONNECTED.contains(&pair.kind);
    if is_connected {
        out.u32(ATTR_RES_RQPN, pair.remote);
        out.u32(ATTR_RES_RQ_PSN, pair.rq_psn);
    }
    out.u32(ATTR_RES_SQ_PSN, pair.sq_psn);
    if is_connected {
        out.u8(ATTR_RES_PATH_MIG_STATE, MIGRATED);
    }
    out.u8(ATTR_RES_TYPE, pair.kind);
    out.u8(ATTR_RES_STATE, pair.state);
    if pair.moved {
        // Names and values in turn, which `rdma -dd` shows.
        let table = out.open_nested(ATTR_DRIVER);
        out.text(ATTR_DRIVER_STRING, b"local_path");
        out.text(ATTR_DRIVER_STRING, b"rings");
        out.close(table);
    }
}

fn describe_id(out: &mut Datagram, id: &Id) {
    out.u32(ATTR_PORT_INDEX, port_of(id.port));
    if id.pair != 0 {
        out.u32(ATTR_RES_LQPN, id.pair);
        out.u8(ATTR_RES_TYPE, id.kind);
    }
    out.u32(ATTR_RES_PS, id.space.into());
    out.u8(ATTR_RES_STATE, id.state);
    for (kind, address) in [(ATTR_RES_SRC_ADDR, id.local), (ATTR_RES_DST_ADDR, id.peer)] {
        if let Some(address) = address {
            out.address(kind, &address);
        }
    }
}

/// Lists the queue pairs of a shared receive queue, as many as fit into half a datagram.
fn describe_users(out: &mut Datagram, facts: &impl Facts, device: &Device<'_>, number: u32) {
    const MOST: u32 = 128;

    let table = out.open_nested(ATTR_RES_QP);
    let mut count = 0_u32;
    facts.each(device, &mut |listed| {
        if let Object::Pair(pair) = listed.row.object
            && pair.srq == number
        {
            let entry = out.open_nested(ATTR_RES_QP_ENTRY);
            out.u32(ATTR_RES_LQPN, pair.number);
            out.close(entry);
            count = count.wrapping_add(1);
        }
        count < MOST
    });
    out.close(table);
}
