// SPDX-License-Identifier: MIT OR Apache-2.0

//! Verbs calls and completions in the verbs' words.

use iwarp::{Access, AtomicOp, MemoryRegion, Payload, SendOp, Sge, Stag, WcOp, WcStatus};
use iwarp::{TaggedOffset, WorkCompletion};
use serde::{Deserialize, Serialize};

/// A verbs call, or a completion that was polled.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Deed {
    /// The call's name without the prefix of C, or `completion`.
    pub(crate) verb: String,
    /// The least that there is to say.
    pub(crate) about: String,
    /// The call's name in C, or the function that gave the completion.
    pub(crate) in_c: String,
    /// Arguments, or the completion's fields.
    pub(crate) fields: Vec<(String, String)>,
}

impl Deed {
    pub(crate) fn new(verb: &str, about: impl Into<String>, in_c: &str) -> Self {
        let (verb, in_c) = (verb.to_owned(), in_c.to_owned());
        Self { verb, about: about.into(), in_c, fields: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    fn with_sge(self, sge: &Sge) -> Self {
        let place = format!("addr {:#x}, length {}, lkey {}", sge.addr, sge.length, key(sge.lkey));
        self.with("sg_list", place)
    }

    fn with_remote(self, stag: Stag, to: TaggedOffset) -> Self {
        self.with("remote_addr", format!("{:#x}", to.0)).with("rkey", key(stag))
    }

    pub(crate) fn registered(region: &MemoryRegion, access: Access) -> Self {
        let rights: Vec<String> =
            access.iter_names().map(|(name, _)| name.to_lowercase()).collect();
        let rights = if rights.is_empty() { "local_read".to_owned() } else { rights.join(" | ") };
        Self::new("reg_mr", bytes(region.len() as u64), "ibv_reg_mr")
            .with("addr", format!("{:#x}", region.base().0))
            .with("length", region.len().to_string())
            .with("access", rights)
            .with("lkey", key(region.lkey()))
            .with("rkey", key(region.rkey()))
    }

    pub(crate) fn post_recv(wr_id: u64, sge: &Sge) -> Self {
        let about = format!("room for {}", bytes(sge.length.into()));
        Self::new("post_recv", about, "ibv_post_recv")
            .with("wr_id", wr_id.to_string())
            .with_sge(sge)
    }

    pub(crate) fn post_send(wr_id: u64, op: &SendOp, payload: &Payload<'_>) -> Self {
        let (name, opcode) = operation(op);
        let about = match op {
            SendOp::Immediate { .. } => name.to_owned(),
            _ => format!("{name}, {}", bytes(payload.len())),
        };
        let in_c = match opcode {
            Some(opcode) => format!("ibv_post_send, {opcode}"),
            None => "none: ibv_post_send has no opcode for it".to_owned(),
        };
        let mut deed = Self::new("post_send", about, &in_c).with("wr_id", wr_id.to_string());
        deed = match payload {
            Payload::Sges(sges) => sges.iter().fold(deed, Self::with_sge),
            Payload::Inline(data) => deed
                .with("send_flags", "signaled | inline")
                .with("inline data", super::fields::data(data)),
            _ => deed,
        };
        match *op {
            SendOp::Write { stag, to } | SendOp::Read { stag, to, .. } => {
                deed.with_remote(stag, to)
            }
            SendOp::Atomic { stag, to, op } => {
                let deed = deed.with_remote(stag, to);
                match op {
                    AtomicOp::FetchAdd { add, .. } => deed.with("compare_add", add.to_string()),
                    AtomicOp::CompareSwap { compare, swap, .. } => {
                        deed.with("compare_add", compare.to_string()).with("swap", swap.to_string())
                    }
                }
            }
            SendOp::Immediate { data, .. } => deed.with("data", super::fields::data(&data)),
            _ => deed,
        }
    }

    pub(crate) fn completion(completion: &WorkCompletion) -> Self {
        let (name, opcode, sized) = completed(completion.op);
        let mut about = name.to_owned();
        if completion.status != WcStatus::Success {
            about = format!("{about}: {:?}", completion.status);
        } else if sized {
            about = format!("{about}, {}", bytes(completion.byte_len.into()));
        }
        let mut deed = Self::new("completion", about, "ibv_poll_cq")
            .with("wr_id", completion.wr_id.to_string())
            .with("status", format!("{:?}", completion.status));
        if let Some(opcode) = opcode {
            deed = deed.with("opcode", opcode);
        }
        if sized {
            deed = deed.with("byte_len", completion.byte_len.to_string());
        }
        if let Some(data) = completion.immediate {
            deed = deed.with("immediate data", super::fields::data(&data));
        }
        deed
    }
}

/// A key as programs print it.
fn key(stag: Stag) -> String {
    format!("{:#010x}", stag.0)
}

/// A number of bytes.
pub(crate) fn bytes(count: u64) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

/// The name of an operation, and its opcode in C.
const fn operation(op: &SendOp) -> (&'static str, Option<&'static str>) {
    match op {
        SendOp::Write { .. } => ("RDMA Write", Some("IBV_WR_RDMA_WRITE")),
        SendOp::Send { .. } => ("Send", Some("IBV_WR_SEND")),
        SendOp::Read { .. } => ("RDMA Read", Some("IBV_WR_RDMA_READ")),
        SendOp::Atomic { op: AtomicOp::FetchAdd { .. }, .. } => {
            ("FetchAdd", Some("IBV_WR_ATOMIC_FETCH_AND_ADD"))
        }
        SendOp::Atomic { .. } => ("CompareSwap", Some("IBV_WR_ATOMIC_CMP_AND_SWP")),
        SendOp::Immediate { .. } => ("Immediate Data", None),
        _ => ("another operation", None),
    }
}

/// The name of what completed, its opcode in C, and whether its length is told.
const fn completed(op: WcOp) -> (&'static str, Option<&'static str>, bool) {
    match op {
        WcOp::Send => ("Send", Some("IBV_WC_SEND"), false),
        WcOp::Write => ("RDMA Write", Some("IBV_WC_RDMA_WRITE"), false),
        WcOp::Read => ("RDMA Read", Some("IBV_WC_RDMA_READ"), true),
        WcOp::FetchAdd => ("FetchAdd", Some("IBV_WC_FETCH_ADD"), false),
        WcOp::CompareSwap => ("CompareSwap", Some("IBV_WC_COMP_SWAP"), false),
        WcOp::Immediate => ("Immediate Data", None, false),
        WcOp::Recv => ("receive", Some("IBV_WC_RECV"), true),
        WcOp::RecvImmediate => ("receive of Immediate Data", None, false),
        _ => ("another operation", None, false),
    }
}
