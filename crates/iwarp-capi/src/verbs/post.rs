// SPDX-License-Identifier: MIT OR Apache-2.0

//! Posting work requests: the functions that the inline functions of the header call.

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;

use iwarp::faults::{self, Kind};
use iwarp::{
    AtomicOp, Destination, Payload, PostError, QpType, RecvRequest, SendOp, SendRequest, Sge, Stag,
    TaggedOffset,
};

use super::attributes;
use super::mw::Mw;
use super::packed::{Elements, seen};
use super::qp::Qp;
use super::srq::Srq;
use crate::abi::flags::*;
use crate::abi::{ibv_recv_wr, ibv_send_wr};
use crate::calls::{outcome, told};
use crate::guard::{self, Errno, set_errno};
use crate::refuse::{decline, refuse};

/// Requests of a list that are handed over together.
const BATCH: usize = 16;
/// Bytes of inline data in them, more than one request can have.
const INLINE: usize = 2048;

/// Copies that some requests need until they are handed over: their inline data, and elements that
/// are misaligned.
struct Copies {
    octets: [MaybeUninit<u8>; INLINE],
    used: usize,
    elements: Elements,
}

impl Copies {
    const fn new() -> Self {
        Self {
            octets: [const { MaybeUninit::uninit() }; INLINE],
            used: 0,
            elements: Elements::new(),
        }
    }

    const fn clear(&mut self) {
        self.used = 0;
        self.elements.clear();
    }

    /// Copies the bytes that the elements name, at once: the program may change them after the
    /// call. `None` when there is no room.
    ///
    /// # Safety
    ///
    /// The elements' addresses are readable memory of the program's; their keys do not count. The
    /// result is not used after `self` is cleared or gone.
    unsafe fn take<'a>(&mut self, sges: &[Sge]) -> Option<&'a [u8]> {
        let start = self.used;
        for sge in sges {
            let from: *const u8 = std::ptr::with_exposed_provenance(sge.addr as usize);
            let room = self.octets.get_mut(self.used..)?;
            let room = room.get_mut(..sge.length as usize)?;
            // SAFETY: the caller's promise; the room was checked.
            unsafe { from.copy_to_nonoverlapping(room.as_mut_ptr().cast(), room.len()) };
            self.used += room.len();
        }
        let taken = &self.octets[start..self.used];
        // SAFETY: just written; the caller sees to the lifetime.
        Some(unsafe { std::slice::from_raw_parts(taken.as_ptr().cast(), taken.len()) })
    }
}

/// The flags of the header, for any operation.
pub(crate) struct Flags(pub(crate) c_uint);

impl Flags {
    pub(crate) const fn has(&self, flag: c_uint) -> bool {
        self.0 & flag != 0
    }
}

fn op(wr: &ibv_send_wr) -> Result<SendOp, Errno> {
    let solicited = wr.send_flags & IBV_SEND_SOLICITED != 0;
    // The bytes as they lie in the program's memory, which means them to be in network order.
    let data = wr.imm_data.to_ne_bytes();
    // SAFETY: all parts of the union are numbers, and which are set is said by the operation.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let (stag, to) = (Stag(rdma.rkey), TaggedOffset(rdma.remote_addr));
    Ok(match wr.opcode {
        IBV_WR_RDMA_WRITE => SendOp::Write { stag, to },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImmediate { stag, to, solicited, data },
        IBV_WR_SEND => SendOp::Send { solicited, invalidate: None },
        IBV_WR_SEND_WITH_IMM => SendOp::SendImmediate { solicited, data },
        IBV_WR_SEND_WITH_INV => SendOp::Send { solicited, invalidate: Some(Stag(wr.imm_data)) },
        IBV_WR_RDMA_READ => SendOp::Read { stag, to, invalidate: None },
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            compare_swap(atomic.rkey, atomic.remote_addr, atomic.compare_add, atomic.swap)
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            fetch_add(atomic.rkey, atomic.remote_addr, atomic.compare_add)
        }
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate(Stag(wr.imm_data)),
        IBV_WR_BIND_MW => {
            // SAFETY: the program passes a window of its own.
            let mw = unsafe { wr.bind_mw.mw.cast::<Mw>().as_ref() };
            let mw = mw.ok_or_else(|| refuse!(EINVAL, "IBV_WR_BIND_MW without a memory window"))?;
            mw.bind_op(mw.key(wr.bind_mw.rkey), &wr.bind_mw.bind_info)?
        }
        other => return Err(refuse!(EOPNOTSUPP, "the operation {other} is not supported")),
    })
}

pub(crate) fn compare_swap(rkey: u32, remote_addr: u64, compare: u64, swap: u64) -> SendOp {
    let (stag, to) = (Stag(rkey), TaggedOffset(remote_addr));
    SendOp::Atomic {
        stag,
        to,
        op: AtomicOp::CompareSwap { compare, compare_mask: !0, swap, swap_mask: !0 },
    }
}

pub(crate) fn fetch_add(rkey: u32, remote_addr: u64, add: u64) -> SendOp {
    SendOp::Atomic {
        stag: Stag(rkey),
        to: TaggedOffset(remote_addr),
        op: AtomicOp::FetchAdd { add, mask: 0 },
    }
}

/// The kind of a request, for rules of faults.
const fn kind(opcode: c_uint) -> Kind {
    match opcode {
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV => Kind::Send,
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => Kind::Write,
        IBV_WR_RDMA_READ => Kind::Read,
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => Kind::Atomic,
        _ => Kind::Other,
    }
}

/// Notes that a bind was posted.
///
/// # Safety
///
/// A request to bind names a window of the program's.
unsafe fn note_bind(wr: &ibv_send_wr) {
    if wr.opcode == IBV_WR_BIND_MW {
        // SAFETY: the caller's promise.
        if let Some(mw) = unsafe { wr.bind_mw.mw.cast::<Mw>().as_ref() } {
            mw.bound_as(mw.key(wr.bind_mw.rkey));
        }
    }
}

/// A request of the program's as the library takes it. `None` when `copies` has no room left.
///
/// # Safety
///
/// The memory to which the request points is the program's, and stays until the library was given
/// the result; `copies` is not cleared before.
unsafe fn request<'a>(
    qp: &Qp,
    wr: &ibv_send_wr,
    copies: &mut Copies,
) -> Result<Option<SendRequest<'a>>, Errno> {
    let flags = Flags(wr.send_flags);
    let payload = match wr.opcode {
        // These have no local bytes, even with a list.
        IBV_WR_LOCAL_INV | IBV_WR_BIND_MW => Payload::NONE,
        _ => {
            // SAFETY: the caller's promise.
            let sges = unsafe { copies.elements.of(wr.sg_list, wr.num_sge)? };
            let Some(sges) = sges else { return Ok(None) };
            if flags.has(IBV_SEND_INLINE) {
                let most = qp.init.cap.max_inline_data;
                if sges.iter().any(|sge| sge.addr == 0 && sge.length > 0) {
                    return Err(refuse!(EINVAL, "inline data at the address 0"));
                }
                let length = sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>();
                if length > most.into() {
                    return Err(inline_too_long(length, most));
                }
                // SAFETY: the caller's promise.
                let Some(octets) = (unsafe { copies.take(sges) }) else { return Ok(None) };
                Payload::Inline(octets)
            } else {
                Payload::Sges(sges)
            }
        }
    };
    let mut request = SendRequest::new(wr.wr_id, op(wr)?, payload);
    let about = || (kind(wr.opcode), payload.len());
    if let Some(number) = faults::of_post("ibv_post_send", qp.number(), about) {
        return Err(Errno::plain(number));
    }
    request.signaled = qp.signal_all || flags.has(IBV_SEND_SIGNALED);
    request.fence = flags.has(IBV_SEND_FENCE);
    Ok(Some(request))
}

/// Ends a call that posts: stores which request was refused, if any.
fn finish<T>(
    verb: &str,
    result: Result<Result<(), (*mut T, Errno)>, Errno>,
    first: *mut T,
    bad: *mut *mut T,
) -> c_int {
    let (wr, mut error) = match result {
        Ok(Ok(())) => return 0,
        Ok(Err(refused)) => refused,
        Err(panicked) => (first, panicked),
    };
    // Programs that expect nothing to be refused pass no place for it.
    if !bad.is_null() {
        // SAFETY: the program passes a place for a pointer.
        unsafe { bad.write_unaligned(wr) };
    }
    error.say(verb);
    set_errno(error.number());
    error.number()
}

/// `ibv_post_send`
pub(crate) extern "C" fn post_send(
    qp: &Qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    const VERB: &str = "ibv_post_send";

    // SAFETY: the program passes a list of requests.
    let posted = guard::on_data_path(VERB, || Ok(unsafe { send_list(qp, wr) }));
    let result = finish(VERB, posted, wr, bad);
    told!(ibv_post_send(qp, wr, bad), outcome(result));
    result
}

/// # Safety
///
/// The program passes a list of requests, which stays with all it points to.
unsafe fn send_list(qp: &Qp, first: *mut ibv_send_wr) -> Result<(), (*mut ibv_send_wr, Errno)> {
    let mut copies = Copies::new();
    let mut copy = MaybeUninit::uninit();
    // SAFETY: the caller's promise.
    let Some(wr) = (unsafe { seen(first, &mut copy) }) else { return Ok(()) };
    if wr.next.is_null() {
        // The usual case.
        // SAFETY: the caller's promise.
        let request = unsafe { request(qp, wr, &mut copies) };
        let request = request.and_then(|request| {
            request.ok_or_else(|| inline_too_long(INLINE as u64 + 1, INLINE as u32))
        });
        // SAFETY: the caller's promise.
        let posted = request.and_then(|request| unsafe { post_one(qp, wr, &request) });
        posted.map_err(|error| (first, error))?;
        // SAFETY: the caller's promise.
        unsafe { note_bind(wr) };
        return Ok(());
    }
    let mut at = first;
    while !at.is_null() {
        // SAFETY: the caller's promise.
        at = unsafe { send_some(qp, at, &mut copies)? };
        copies.clear();
    }
    Ok(())
}

/// Posts some requests of a list; returns where it goes on.
///
/// # Safety
///
/// As [`send_list`].
unsafe fn send_some(
    qp: &Qp,
    first: *mut ibv_send_wr,
    copies: &mut Copies,
) -> Result<*mut ibv_send_wr, (*mut ibv_send_wr, Errno)> {
    let mut requests = [const { MaybeUninit::<SendRequest<'_>>::uninit() }; BATCH];
    let mut from = [std::ptr::null_mut(); BATCH];
    let mut count = 0;
    let mut at = first;
    let mut refused = None;
    let mut copy = MaybeUninit::uninit();
    while count < BATCH
        // SAFETY: the caller's promise.
        && let Some(wr) = unsafe { seen(at, &mut copy) }
    {
        // SAFETY: the caller's promise.
        match unsafe { request(qp, wr, copies) } {
            Ok(Some(request)) => requests[count].write(request),
            // The next call has room.
            Ok(None) => break,
            Err(error) => {
                refused = Some((at, error));
                break;
            }
        };
        from[count] = at;
        count += 1;
        at = wr.next;
        if wr.opcode == IBV_WR_BIND_MW {
            // A later one may name the same window.
            break;
        }
    }
    // SAFETY: so many were written.
    let requests = unsafe { std::slice::from_raw_parts(requests.as_ptr().cast(), count) };
    // SAFETY: the caller's promise.
    let posted = unsafe { post_some(qp, &from[..count], requests) };
    posted.map_err(|(number, error)| (from[number], error))?;
    if count > 0
        // SAFETY: the caller's promise.
        && let Some(wr) = unsafe { seen(from[count - 1], &mut copy) }
    {
        // SAFETY: the caller's promise.
        unsafe { note_bind(wr) };
    }
    refused.map_or(Ok(at), Err)
}

/// Posts a request that was made of `wr`.
///
/// # Safety
///
/// As [`post_datagrams`].
unsafe fn post_one(qp: &Qp, wr: &ibv_send_wr, request: &SendRequest<'_>) -> Result<(), Errno> {
    if qp.kind == QpType::Ud {
        let (from, requests) = (std::ptr::from_ref(wr).cast_mut(), std::slice::from_ref(request));
        // SAFETY: the caller's promise.
        return unsafe { post_datagrams(qp, &[from], requests) }.map_err(|(_, error)| error);
    }
    qp.queue_pair.post_send(request).map_err(|error| refused(qp, error, request))
}

/// Posts requests that were made of those of `from`.
///
/// # Safety
///
/// As [`post_datagrams`].
unsafe fn post_some(
    qp: &Qp,
    from: &[*mut ibv_send_wr],
    requests: &[SendRequest<'_>],
) -> Result<(), (usize, Errno)> {
    if qp.kind == QpType::Ud {
        // SAFETY: the caller's promise.
        return unsafe { post_datagrams(qp, from, requests) };
    }
    post_sends(qp, requests)
}

/// Posts requests with the destinations that their originals name. A request whose handle does not
/// exist, or is of another domain, has none: the queue pair decides what becomes of it.
///
/// # Safety
///
/// There are as many originals as requests, and they are the program's.
#[inline(never)]
unsafe fn post_datagrams(
    qp: &Qp,
    from: &[*mut ibv_send_wr],
    requests: &[SendRequest<'_>],
) -> Result<(), (usize, Errno)> {
    let mut destinations = [None::<Destination>; BATCH];
    {
        let known = qp.context().handles.known();
        for (destination, wr) in destinations.iter_mut().zip(from) {
            // SAFETY: the caller's promise. All parts of the union are numbers and pointers that
            // are not followed.
            let ud = unsafe { (&raw const (**wr).wr.ud).read_unaligned() };
            *destination = known.as_ref().and_then(|known| {
                known.destination(qp.domain, ud.ah, ud.remote_qpn, ud.remote_qkey)
            });
        }
    }
    let Some(first) = requests.first() else { return Ok(()) };
    let mut addressed = [*first; BATCH];
    for ((to, request), destination) in addressed.iter_mut().zip(requests).zip(&destinations) {
        *to = *request;
        to.destination = destination.as_ref();
    }
    post_sends(qp, &addressed[..requests.len()])
}

pub(crate) fn post_sends(qp: &Qp, requests: &[SendRequest<'_>]) -> Result<(), (usize, Errno)> {
    let posted = qp.queue_pair.post_sends(requests);
    posted.map_err(|(number, error)| (number, refused(qp, error, &requests[number])))
}

#[cold]
pub(crate) fn inline_too_long(length: u64, most: u32) -> Errno {
    refuse!(EINVAL, "{length} bytes of inline data, of {most} (max_inline_data) that may be")
}

/// The error for a request that the queue pair does not take.
#[cold]
pub(crate) fn refused(qp: &Qp, error: PostError, request: &SendRequest<'_>) -> Errno {
    let (number, cap, wr_id) = (qp.number(), &qp.init.cap, request.wr_id);
    let (sges, inline) = match request.payload {
        Payload::Sges(sges) => (sges.len(), 0),
        Payload::Inline(octets) => (0, octets.len()),
        _ => (0, 0),
    };
    match error {
        // Programs may post until it is full. The engine tells of it where nothing frees it again.
        PostError::QueueFull => decline!(
            ENOMEM,
            "the send queue of queue pair {number} is full: it has room for {} (max_send_wr) \
             requests; poll its completion queue, and signal at least one request in as many",
            cap.max_send_wr
        ),
        PostError::TooManySges => refuse!(
            EINVAL,
            "{sges} scatter/gather elements, of {} (max_send_sge) that queue pair {number} may have",
            cap.max_send_sge
        ),
        PostError::InlineTooLong => inline_too_long(inline as u64, cap.max_inline_data),
        PostError::WrongState => wrong_state(qp, "sending needs RTS (ibv_modify_qp)"),
        PostError::OutOfMemory => refuse!(ENOMEM, "out of memory"),
        PostError::Invalid => refuse!(
            EINVAL,
            "request {wr_id:#x} contradicts itself, or queue pair {number} does not have its \
             operation: {}",
            operation(&request.op)
        ),
        error => refuse!(EINVAL, "request {wr_id:#x}: {error}"),
    }
}

/// As the header names it.
fn operation(op: &SendOp) -> &'static str {
    match op {
        SendOp::Write { .. } => "IBV_WR_RDMA_WRITE",
        SendOp::WriteImmediate { .. } => "IBV_WR_RDMA_WRITE_WITH_IMM",
        SendOp::Send { invalidate: None, .. } => "IBV_WR_SEND",
        SendOp::Send { .. } => "IBV_WR_SEND_WITH_INV",
        SendOp::SendImmediate { .. } => "IBV_WR_SEND_WITH_IMM",
        SendOp::Read { .. } => "IBV_WR_RDMA_READ",
        SendOp::Atomic { .. } => "IBV_WR_ATOMIC_CMP_AND_SWP or IBV_WR_ATOMIC_FETCH_AND_ADD",
        SendOp::LocalInvalidate(_) => "IBV_WR_LOCAL_INV",
        SendOp::Bind(_) => "IBV_WR_BIND_MW",
        _ => "another",
    }
}

#[cold]
fn wrong_state(qp: &Qp, needed: &str) -> Errno {
    let state = attributes::name(qp.state());
    refuse!(EINVAL, "queue pair {} is in {state}; {needed}", qp.number())
}

/// The error for a receive with so many elements that the queue pair does not take.
#[cold]
fn receive_refused(qp: &Qp, error: PostError, sges: usize) -> Errno {
    let (number, cap) = (qp.number(), &qp.init.cap);
    match error {
        PostError::QueueFull => refuse!(
            ENOMEM,
            "the receive queue of queue pair {number} is full: it has room for {} (max_recv_wr)",
            cap.max_recv_wr
        ),
        PostError::TooManySges => refuse!(
            EINVAL,
            "{sges} scatter/gather elements, of {} (max_recv_sge) that queue pair {number} may have",
            cap.max_recv_sge
        ),
        PostError::WrongState => wrong_state(qp, "receives can be posted from INIT on"),
        PostError::SharedReceiveQueue => refuse!(
            EINVAL,
            "queue pair {number} takes its receives from a shared receive queue: post them there \
             (ibv_post_srq_recv)"
        ),
        PostError::OutOfMemory => refuse!(ENOMEM, "out of memory"),
        error => refuse!(EINVAL, "{error}"),
    }
}

/// `ibv_post_recv`
pub(crate) extern "C" fn post_recv(
    qp: &Qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    const VERB: &str = "ibv_post_recv";

    let post = |requests: &[RecvRequest<'_>]| {
        let posted = qp.queue_pair.post_recvs(requests);
        posted.map_err(|(at, error)| (at, receive_refused(qp, error, requests[at].sges.len())))
    };
    // SAFETY: the program passes a list of requests.
    let posted =
        guard::on_data_path(VERB, || Ok(unsafe { receive_list(wr, Some(qp.number()), post) }));
    let result = finish(VERB, posted, wr, bad);
    told!(ibv_post_recv(qp, wr, bad), outcome(result));
    result
}

/// `ibv_post_srq_recv`
pub(crate) extern "C" fn post_srq_recv(
    srq: &Srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    const VERB: &str = "ibv_post_srq_recv";

    let post = |requests: &[RecvRequest<'_>]| {
        let mut numbered = requests.iter().enumerate();
        numbered.try_for_each(|(number, request)| {
            let posted = srq.queue().post(request);
            posted.map_err(|error| (number, srq.refused(error, request.sges.len())))
        })
    };
    // SAFETY: the program passes a list of requests.
    let posted = guard::on_data_path(VERB, || Ok(unsafe { receive_list(wr, None, post) }));
    let result = finish(VERB, posted, wr, bad);
    told!(ibv_post_srq_recv(srq, wr, bad), outcome(result));
    result
}

/// The error number by which a rule refuses a receive, if one does.
fn receive_fault(qp: u32, sges: &[Sge]) -> Option<c_int> {
    let bytes = || sges.iter().map(|sge| u64::from(sge.length)).sum();
    faults::of_post("ibv_post_recv", qp, || (Kind::Recv, bytes()))
}

/// # Safety
///
/// The program passes a list of requests, which stays with all it points to.
unsafe fn receive_list(
    first: *mut ibv_recv_wr,
    qp: Option<u32>,
    post: impl Fn(&[RecvRequest<'_>]) -> Result<(), (usize, Errno)>,
) -> Result<(), (*mut ibv_recv_wr, Errno)> {
    let mut at = first;
    let mut elements = Elements::new();
    let mut copy = MaybeUninit::uninit();
    while !at.is_null() {
        elements.clear();
        let mut requests = [RecvRequest::new(0, &[]); BATCH];
        let mut from = [std::ptr::null_mut(); BATCH];
        let mut count = 0;
        let mut refused = None;
        while count < BATCH
            // SAFETY: the caller's promise.
            && let Some(wr) = unsafe { seen(at, &mut copy) }
        {
            // SAFETY: the caller's promise.
            match unsafe { elements.of(wr.sg_list, wr.num_sge) } {
                Ok(Some(sges)) => {
                    if let Some(number) = qp.and_then(|qp| receive_fault(qp, sges)) {
                        refused = Some((at, Errno::plain(number)));
                        break;
                    }
                    requests[count] = RecvRequest::new(wr.wr_id, sges);
                }
                // The next call has room.
                Ok(None) => break,
                Err(error) => {
                    refused = Some((at, error));
                    break;
                }
            }
            from[count] = at;
            count += 1;
            at = wr.next;
        }
        post(&requests[..count]).map_err(|(number, error)| (from[number], error))?;
        if let Some(refused) = refused {
            return Err(refused);
        }
    }
    Ok(())
}
