// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events, as the program is told of them.

use std::ffi::c_void;
use std::io;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use iwarp::QpState;
use iwarp::cm::{ConnectError, Event, EventKind, Id, StartupError};
use iwarp::faults::{self, Outcome, Step};

use super::abi::*;
use super::acknowledge::CmEvent;
use super::channel::CmChannel;
use super::id::{CmId, Resolution};
use super::owner::Shared;
use super::{attr, device, groups, pair};
use crate::abi::ibv_ah_attr;
use crate::guard::Errno;

/// Reasons of the InfiniBand connection manager for a REJ.
const REJ_NO_RESOURCES: i32 = 3;
const REJ_INVALID_SERVICE_ID: i32 = 8;
const REJ_CONSUMER_DEFINED: i32 = 28;

/// The argument of an event that says that `rdma_resolve_addrinfo` is done.
pub(super) const ADDRINFO_RESOLVED: u64 = 1 << 63 | RDMA_CM_EVENT_ADDRINFO_RESOLVED as u64;

/// Marks the argument of an event, of which it has the kind in its lower half, that comes by a rule
/// and in place of a step.
const ON_PURPOSE: u64 = 0b11 << 62;

/// The largest `retry_count`, and an `rnr_retry_count` that sets no limit: librdmacm's defaults.
pub(super) const MOST_RETRIES: u8 = 7;

/// The content of an event, beside the id that it happened to.
struct Told {
    event: u32,
    status: i32,
    private_data: Vec<u8>,
    responder_resources: u8,
    initiator_depth: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    argument: Option<u64>,
    /// Of ids for datagrams.
    datagrams: Option<Datagrams>,
}

/// The destination of datagrams.
#[derive(Clone, Copy)]
struct Datagrams {
    ah_attr: ibv_ah_attr,
    qp_num: u32,
    qkey: u32,
    /// In place of private data.
    context: *const c_void,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self { ah_attr: ibv_ah_attr::default(), qp_num: 0, qkey: 0, context: null() }
    }
}

impl Told {
    fn new(event: u32, status: i32) -> Self {
        Self {
            event,
            status,
            private_data: Vec::new(),
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            argument: None,
            datagrams: None,
        }
    }
}

/// Makes the program's event; `None` where it is not to be told, as the id is being destroyed.
pub(super) fn convert(event: Event) -> Option<*mut rdma_cm_event> {
    let Event { id, listener, kind, .. } = event;
    match kind {
        EventKind::ConnectRequest { private_data, ird, ord, rnr_retry, retry_count, .. } => {
            let said = Said { ird, ord, rnr_retry, retry_count };
            return request(id, &listener?, private_data, Some(said));
        }
        EventKind::ServiceRequest { private_data, .. } => {
            return request(id, &listener?, private_data, None);
        }
        _ => {}
    }
    let (owner, this) = find(&id)?;
    // SAFETY: not destroyed before the event that `find` counts is acknowledged.
    let this = unsafe { CmId::of(this) }.ok()?;
    let told = tell(this, kind);
    this.show();
    match told {
        Some(told) => Some(made(owner, this.as_abi(), null_mut(), told)),
        None => {
            owner.acknowledge();
            None
        }
    }
}

/// The program's id, which stays until the event is acknowledged.
fn find(id: &Id) -> Option<(Arc<Shared>, *mut rdma_cm_id)> {
    let owner = id.context()?.downcast::<Shared>().ok()?;
    let this = owner.hand_out()?;
    Some((owner, this))
}

/// The terms that a peer asks for, as far as it says them.
struct Said {
    ird: Option<u16>,
    ord: Option<u16>,
    rnr_retry: Option<u8>,
    retry_count: Option<u8>,
}

/// A peer wants to connect, or, where it says nothing of Reads, to know the queue pair of a
/// datagram service: there is a new id.
fn request(
    id: Id,
    listener: &Id,
    private_data: Vec<u8>,
    said: Option<Said>,
) -> Option<*mut rdma_cm_event> {
    let (owner, listener) = find(listener)?;
    // SAFETY: as in `convert`.
    let listener = unsafe { CmId::of(listener) }.ok()?;
    match new_id(id, listener) {
        Ok(new) => {
            let (served, outstanding) = device::depths().unwrap_or((0, 0));
            // SAFETY: just made.
            let is_infiniband = unsafe { CmId::of(new) }.is_ok_and(CmId::is_infiniband);
            let mut told = Told::new(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
            match said {
                // The peer's outstanding Reads and Atomics are those to be served here, and the
                // other way round (rdma_get_cm_event(3)). MPA revision 1 does not say.
                Some(Said { ird, ord, rnr_retry, retry_count }) => {
                    told.responder_resources = ord.map_or(served, depth);
                    told.initiator_depth = ird.map_or(outstanding, depth);
                    // Programs hand it to rdma_accept. An RNIC has none.
                    let unsaid = if is_infiniband { MOST_RETRIES } else { 0 };
                    told.rnr_retry_count = rnr_retry.unwrap_or(unsaid);
                    told.retry_count = retry_count.unwrap_or(unsaid);
                }
                None => told.datagrams = Some(Datagrams::default()),
            }
            told.private_data = private_data;
            // SAFETY: just made.
            if let Ok(new) = unsafe { CmId::of(new) } {
                let mut state = new.state();
                state.responder_resources = told.responder_resources;
                state.initiator_depth = told.initiator_depth;
            }
            Some(made(owner, new, listener.as_abi(), told))
        }
        Err(error) => {
            iwarp::report!(WARN, ?error, "a connection request is dropped");
            owner.acknowledge();
            None
        }
    }
}

fn new_id(id: Id, listener: &CmId) -> Result<*mut rdma_cm_id, Errno> {
    // Requests at a synchronous id make synchronous ids.
    let sync = listener.state().sync;
    let channel = if sync { CmChannel::create()? } else { listener.channel.get() };
    if sync {
        // SAFETY: just made.
        id.migrate(&unsafe { CmChannel::of(channel)? });
    }
    let new = CmId::make(id, channel, listener.context.get(), listener.ps, listener.qp_type);
    // SAFETY: just made.
    let this = unsafe { CmId::of(new)? };
    this.state().sync = sync;
    this.enter_device()?;
    this.show_addresses();
    if this.is_infiniband() {
        this.show_path();
    }
    Ok(new)
}

/// The event that the program is told, after the id was changed accordingly.
fn tell(this: &CmId, kind: EventKind) -> Option<Told> {
    Some(match kind {
        EventKind::AddressResolved => {
            match this.enter_device() {
                Ok(()) => this.show_addresses(),
                Err(mut error) => {
                    error.say("rdma_resolve_addr");
                    return Some(Told::new(RDMA_CM_EVENT_ADDR_ERROR, -error.number()));
                }
            }
            Told::new(RDMA_CM_EVENT_ADDR_RESOLVED, 0)
        }
        EventKind::RouteResolved => {
            this.state().is_routed = true;
            if this.is_infiniband() {
                this.show_path();
            }
            Told::new(RDMA_CM_EVENT_ROUTE_RESOLVED, 0)
        }
        EventKind::Established { private_data, ird, ord, .. } => {
            this.show_addresses();
            pair::refresh_state(this);
            attr::show(this, &attr::terms(this, (depth(ird), depth(ord))));
            let mut told = Told::new(RDMA_CM_EVENT_ESTABLISHED, 0);
            told.private_data = private_data;
            (told.responder_resources, told.initiator_depth) = (depth(ird), depth(ord));
            told
        }
        EventKind::Responded { private_data, ird, ord, .. } => {
            this.show_addresses();
            let mut told = Told::new(RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
            told.private_data = private_data;
            (told.responder_resources, told.initiator_depth) = (depth(ird), depth(ord));
            told
        }
        EventKind::AddressError(error) => {
            Told::new(RDMA_CM_EVENT_ADDR_ERROR, -Errno::from(error).number())
        }
        EventKind::Rejected { private_data, ird, ord, reason, .. } => {
            let status = match reason {
                Some(reason) => reason.into(),
                None if this.is_infiniband() => REJ_CONSUMER_DEFINED,
                None => -libc::ECONNREFUSED,
            };
            let mut told = failed(this, RDMA_CM_EVENT_REJECTED, status);
            told.private_data = private_data;
            told.responder_resources = ord.map_or(0, depth);
            told.initiator_depth = ird.map_or(0, depth);
            told
        }
        EventKind::Unreachable(error) => refused(this, &error),
        EventKind::ConnectError(ConnectError::Io(error) | ConnectError::Unreachable(error)) => {
            refused(this, &error)
        }
        EventKind::ConnectError(ConnectError::Startup(StartupError::Closed)) => {
            refused(this, &io::ErrorKind::ConnectionReset.into())
        }
        EventKind::ConnectError(
            ConnectError::Startup(StartupError::Timeout) | ConnectError::Timeout,
        ) => refused(this, &io::ErrorKind::TimedOut.into()),
        EventKind::ConnectError(_) => failed(this, RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO),
        EventKind::Disconnected(_) => {
            pair::refresh_state(this);
            // Another event may follow, for which this one does not wait.
            fails_on_purpose(this, Step::Disconnection);
            Told::new(RDMA_CM_EVENT_DISCONNECTED, 0)
        }
        EventKind::TimewaitExit => Told::new(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0),
        EventKind::ServiceFound { private_data, address, qp, qkey, .. } => {
            let mut told = Told::new(RDMA_CM_EVENT_ESTABLISHED, 0);
            told.private_data = private_data;
            let ah_attr = attr::handle_attr(this, &address);
            told.datagrams = Some(Datagrams { ah_attr, qp_num: qp, qkey, ..Datagrams::default() });
            told
        }
        EventKind::ServiceRefused { status, .. } => {
            Told::new(RDMA_CM_EVENT_UNREACHABLE, status.into())
        }
        EventKind::MulticastJoined { group, address, qp, qkey, .. } => {
            let (context, attached) =
                groups::joined(&mut this.state().groups, this.qp.get(), group)?;
            let (event, status) = match attached {
                Ok(()) => (RDMA_CM_EVENT_MULTICAST_JOIN, 0),
                Err(error) => (RDMA_CM_EVENT_MULTICAST_ERROR, -error.number()),
            };
            let mut told = Told::new(event, status);
            let ah_attr = attr::handle_attr(this, &address);
            told.datagrams = Some(Datagrams { ah_attr, qp_num: qp, qkey, context });
            told
        }
        EventKind::User { status, argument: ADDRINFO_RESOLVED } => {
            debug_assert!(matches!(this.state().addrinfo, Resolution::Done(_)));
            Told::new(RDMA_CM_EVENT_ADDRINFO_RESOLVED, status)
        }
        EventKind::User { status, argument } if argument & ON_PURPOSE == ON_PURPOSE => {
            failed(this, argument as u32, status)
        }
        EventKind::User { status, argument } => {
            let mut told = Told::new(RDMA_CM_EVENT_USER, status);
            told.argument = Some(argument);
            told
        }
        // A request has an id of its own, and C programs know no other kind.
        _ => return None,
    })
}

/// The peer does not answer, or refuses: told as the kernel's iWARP connection manager tells it,
/// and where the device looks like InfiniBand with the reasons known there.
fn refused(this: &CmId, error: &io::Error) -> Told {
    let of_kind = || Errno::from(io::Error::from(error.kind())).number();
    let number = error.raw_os_error().unwrap_or_else(of_kind);
    let infiniband = this.is_infiniband();
    let (event, status) = match number {
        libc::ECONNREFUSED if infiniband => (RDMA_CM_EVENT_REJECTED, REJ_INVALID_SERVICE_ID),
        libc::ECONNRESET | libc::EPIPE if infiniband => (RDMA_CM_EVENT_REJECTED, REJ_NO_RESOURCES),
        libc::ECONNREFUSED | libc::ECONNRESET => (RDMA_CM_EVENT_REJECTED, -number),
        libc::EPIPE => (RDMA_CM_EVENT_REJECTED, -libc::ECONNRESET),
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => {
            (RDMA_CM_EVENT_UNREACHABLE, -number)
        }
        _ => (RDMA_CM_EVENT_CONNECT_ERROR, -number),
    };
    failed(this, event, status)
}

/// True if a rule has this step end in an event of its own, which comes: the step does not begin.
pub(super) fn fails_on_purpose(this: &CmId, step: Step) -> bool {
    let Some(outcome) = faults::of_step(step) else { return false };
    let infiniband = this.is_infiniband();
    let (event, status) = match outcome {
        Outcome::AddressError => (RDMA_CM_EVENT_ADDR_ERROR, -libc::EHOSTUNREACH),
        Outcome::RouteError => (RDMA_CM_EVENT_ROUTE_ERROR, -libc::ETIMEDOUT),
        Outcome::Rejected if infiniband => (RDMA_CM_EVENT_REJECTED, REJ_INVALID_SERVICE_ID),
        Outcome::Rejected => (RDMA_CM_EVENT_REJECTED, -libc::ECONNREFUSED),
        Outcome::Unreachable => (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
        Outcome::ConnectError => (RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO),
        Outcome::TimewaitExit => (RDMA_CM_EVENT_TIMEWAIT_EXIT, 0),
    };
    this.id.notify(status, ON_PURPOSE | u64::from(event));
    true
}

/// The connection was not made.
fn failed(this: &CmId, event: u32, status: i32) -> Told {
    // Requests that were posted meanwhile are flushed when the peer refuses (as librdmacm does).
    if event == RDMA_CM_EVENT_REJECTED {
        pair::if_alive(this, |qp| {
            // Every state may become that of an error.
            let _ = qp.queue_pair().modify(QpState::Err);
            qp.refresh_state();
        });
    }
    Told::new(event, status)
}

pub(super) fn depth(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

fn made(
    owner: Arc<Shared>,
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
    told: Told,
) -> *mut rdma_cm_event {
    let mut private_data = told.private_data;
    // The length in C goes no further. MPA carries up to 512 bytes.
    private_data.truncate(u8::MAX.into());
    let private_data = private_data.into_boxed_slice();
    let data = if private_data.is_empty() { null() } else { private_data.as_ptr().cast() };
    // SAFETY: numbers and nullable pointers.
    let mut param: rdma_cm_event_param = unsafe { std::mem::zeroed() };
    match (told.argument, told.datagrams) {
        (Some(argument), _) => param.arg = argument,
        (None, Some(Datagrams { ah_attr, qp_num, qkey, context })) => {
            param.ud = rdma_ud_param {
                private_data: if context.is_null() { data } else { context },
                private_data_len: private_data.len() as u8,
                ah_attr,
                qp_num,
                qkey,
            };
        }
        (None, None) => {
            param.conn = rdma_conn_param {
                private_data: data,
                private_data_len: private_data.len() as u8,
                responder_resources: told.responder_resources,
                initiator_depth: told.initiator_depth,
                flow_control: 0,
                retry_count: told.retry_count,
                rnr_retry_count: told.rnr_retry_count,
                srq: 0,
                qp_num: 0,
            };
        }
    }
    let abi = rdma_cm_event { id, listen_id, event: told.event, status: told.status, param };
    Box::into_raw(Box::new(CmEvent { abi, owner, private_data })).cast()
}
