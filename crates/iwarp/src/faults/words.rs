// SPDX-License-Identifier: MIT OR Apache-2.0

//! The names that rules use.

use iwarp_types::{WcOp, WcStatus};

use super::Outcome;
use super::placing::Order;
use super::rules::Kind;

/// The lanes of completions, which count their operations apart.
pub(super) const SENT: &str = "sent";
pub(super) const RECEIVED: &str = "received";
/// The lane of the segments whose bytes are placed.
pub(super) const PLACED: &str = "placed";

/// The lanes of events that the program takes.
pub(super) const EVENTS: &str = "event";
pub(super) const ASYNC_EVENTS: &str = "async-event";
pub(super) const CM_EVENTS: &str = "cm-event";
/// The lanes of the steps of the connection manager, which end in an event.
pub(super) const ADDRESS: &str = "address";
pub(super) const ROUTE: &str = "route";
pub(super) const CONNECTION: &str = "connection";
pub(super) const DISCONNECTION: &str = "disconnection";

pub(super) const OUTCOMES: [(&str, Outcome); 6] = [
    ("ADDR_ERROR", Outcome::AddressError),
    ("ROUTE_ERROR", Outcome::RouteError),
    ("REJECTED", Outcome::Rejected),
    ("UNREACHABLE", Outcome::Unreachable),
    ("CONNECT_ERROR", Outcome::ConnectError),
    ("TIMEWAIT_EXIT", Outcome::TimewaitExit),
];

pub(super) const ORDERS: [(&str, Order); 2] =
    [("pieces", Order::LastLast), ("last-first", Order::LastFirst)];

/// A function of the C API that a rule may have refused, or take its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// It is called on a queue pair.
    pub(super) on_qp: bool,
    /// It posts work requests, each of which counts.
    pub(super) posts: bool,
    /// It can be refused. Functions that take something back do not fail on cards, but for
    /// mistakes.
    pub(super) fails: bool,
}

const fn verb(name: &'static str, on_qp: bool, posts: bool) -> Verb {
    Verb { name, on_qp, posts, fails: true }
}

const fn slow(name: &'static str) -> Verb {
    Verb { name, on_qp: false, posts: false, fails: false }
}

/// Functions that make, change or begin something, and others that can only be slow.
pub(super) const VERBS: [Verb; 50] = [
    verb("ibv_post_send", true, true),
    verb("ibv_post_recv", true, true),
    verb("ibv_wr_complete", true, true),
    verb("ibv_modify_qp", true, false),
    verb("ibv_open_device", false, false),
    verb("ibv_alloc_pd", false, false),
    verb("ibv_alloc_td", false, false),
    verb("ibv_alloc_parent_domain", false, false),
    verb("ibv_alloc_mw", false, false),
    verb("ibv_alloc_dm", false, false),
    verb("ibv_reg_mr", false, false),
    verb("ibv_reg_mr_iova", false, false),
    verb("ibv_reg_mr_iova2", false, false),
    verb("ibv_reg_dm_mr", false, false),
    verb("ibv_reg_dmabuf_mr", false, false),
    verb("ibv_rereg_mr", false, false),
    verb("ibv_create_comp_channel", false, false),
    verb("ibv_create_cq", false, false),
    verb("ibv_create_cq_ex", false, false),
    verb("ibv_resize_cq", false, false),
    verb("ibv_create_qp", false, false),
    verb("ibv_create_qp_ex", false, false),
    verb("ibv_create_srq", false, false),
    verb("ibv_create_srq_ex", false, false),
    verb("ibv_create_ah", false, false),
    verb("ibv_req_notify_cq", false, false),
    verb("rdma_create_event_channel", false, false),
    verb("rdma_create_id", false, false),
    verb("rdma_create_qp", false, false),
    verb("rdma_create_srq", false, false),
    verb("rdma_bind_addr", false, false),
    verb("rdma_resolve_addr", false, false),
    verb("rdma_resolve_route", false, false),
    verb("rdma_listen", false, false),
    verb("rdma_connect", false, false),
    verb("rdma_accept", false, false),
    slow("ibv_poll_cq"),
    slow("ibv_ack_cq_events"),
    slow("ibv_query_qp"),
    slow("ibv_query_port"),
    slow("ibv_dereg_mr"),
    slow("ibv_dealloc_pd"),
    slow("ibv_destroy_qp"),
    slow("ibv_destroy_cq"),
    slow("ibv_destroy_comp_channel"),
    slow("rdma_ack_cm_event"),
    slow("rdma_disconnect"),
    slow("rdma_reject"),
    slow("rdma_destroy_qp"),
    slow("rdma_destroy_id"),
];

/// Error numbers. Those of Linux are alike on all architectures that have this library.
pub(super) const ERRNOS: [(&str, i32); 22] = [
    ("EPERM", 1),
    ("EINTR", 4),
    ("EIO", 5),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOSPC", 28),
    ("ENOSYS", 38),
    ("EOPNOTSUPP", 95),
    ("EADDRINUSE", 98),
    ("EADDRNOTAVAIL", 99),
    ("ENETUNREACH", 101),
    ("ECONNRESET", 104),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EHOSTUNREACH", 113),
];

/// Statuses with their names in the header, without `IBV_WC_`, and whether requests of the send
/// and of the receive queue can have them.
pub(super) const STATUSES: [(&str, WcStatus, bool, bool); 11] = [
    ("LOC_LEN_ERR", WcStatus::LocalLength, true, true),
    ("LOC_QP_OP_ERR", WcStatus::LocalQpOperation, true, true),
    ("LOC_PROT_ERR", WcStatus::LocalProtection, true, true),
    ("BAD_RESP_ERR", WcStatus::BadResponse, true, false),
    ("LOC_ACCESS_ERR", WcStatus::LocalAccess, false, true),
    ("REM_INV_REQ_ERR", WcStatus::RemoteInvalidRequest, true, false),
    ("REM_ACCESS_ERR", WcStatus::RemoteAccess, true, false),
    ("REM_OP_ERR", WcStatus::RemoteOperation, true, false),
    ("RETRY_EXC_ERR", WcStatus::RetryExceeded, true, false),
    ("RNR_RETRY_EXC_ERR", WcStatus::RnrRetryExceeded, true, false),
    ("GENERAL_ERR", WcStatus::General, true, true),
];

pub(super) const KINDS: [(&str, Kind); 8] = [
    ("send", Kind::Send),
    ("write", Kind::Write),
    ("read", Kind::Read),
    ("atomic", Kind::Atomic),
    ("recv", Kind::Recv),
    ("event", Kind::Event),
    ("async-event", Kind::AsyncEvent),
    ("cm-event", Kind::CmEvent),
];

/// The kind of the request that a completion is of.
pub(super) const fn kind_of(op: WcOp) -> Kind {
    match op {
        WcOp::Send | WcOp::Immediate => Kind::Send,
        WcOp::Write => Kind::Write,
        WcOp::Read => Kind::Read,
        WcOp::FetchAdd | WcOp::CompareSwap => Kind::Atomic,
        WcOp::Recv | WcOp::RecvImmediate | WcOp::RecvWriteImmediate => Kind::Recv,
        _ => Kind::Other,
    }
}
