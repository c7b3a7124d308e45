// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs.

use std::ffi::{c_int, c_uint};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp::{
    AsyncEvent, DatagramAttributes, Log, Personality, QpState, QpType, QueuePair,
    QueuePairAttributes,
};
use iwarp_os::ProcessOwned;

use super::book::Key;
use super::counts::Kind;
use super::cq::Cq;
use super::datagram::kind;
use super::object::Object;
use super::pd::Pd;
use super::srq::Srq;
use super::wr::{self, Builder};
use super::{Context, Life};
use crate::abi::flags::*;
use crate::abi::{
    Plain, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::guard::{self, Errno};
use crate::refuse::{Site, decline, given, refuse};

/// A queue pair.
#[repr(C)]
pub struct Qp {
    pub(crate) abi: ibv_qp_ex,
    pub(super) object: Object,
    pub(crate) queue_pair: QueuePair,
    /// Its type; RC where it is a mere number.
    pub(crate) kind: QpType,
    /// Number of its protection domain.
    pub(crate) domain: u32,
    /// The attributes with which it was made.
    pub(crate) init: ibv_qp_init_attr,
    /// Every request raises a completion.
    pub(crate) signal_all: bool,
    /// The attributes that the program has set, and reads back.
    attr: ProcessOwned<Mutex<ibv_qp_attr>>,
    /// The attributes that the library was told of one over datagrams.
    told: ProcessOwned<Mutex<DatagramAttributes>>,
    /// The multicast groups that it is attached to.
    groups: ProcessOwned<Mutex<Vec<IpAddr>>>,
    /// The connection manager makes its connection.
    managed: AtomicBool,
    /// The operations of `ibv_qp_ex` that it was made for; 0 where it was not made for any.
    send_ops: u64,
    pub(crate) builder: Builder,
    _pd: Life,
    _send_cq: Life,
    _recv_cq: Life,
    _srq: Option<Life>,
    /// The numbers by which other processes know its domain and its shared receive queue.
    pub(super) shown: (u32, u32),
}

impl Qp {
    /// The pointer that the program knows it by.
    pub fn as_abi(&self) -> *mut ibv_qp {
        (&raw const self.abi.base).cast_mut()
    }

    /// The queue pair behind a pointer that the program has.
    ///
    /// # Safety
    ///
    /// The pointer is null or one that a function of this library gave, and the queue pair exists.
    pub unsafe fn of<'a>(qp: *mut ibv_qp) -> Option<&'a Self> {
        // SAFETY: the caller's promise; `abi` begins with the `ibv_qp`.
        unsafe { qp.cast::<Self>().as_ref() }
    }

    /// The library's queue pair.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.abi.base.qp_num
    }

    /// True if it is there for its number only, and never leaves the state it was made in.
    pub fn is_mere_number(&self) -> bool {
        self.init.qp_type == IBV_QPT_UD && self.kind != QpType::Ud
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        // SAFETY: the context stays for as long as its objects are.
        unsafe { Context::of(self.abi.base.context) }
    }

    /// Checks that the public half is still that of this object.
    ///
    /// # Errors
    ///
    /// `ENOENT`
    pub(crate) fn check(&self) -> Result<(), Errno> {
        self.object.check(self.abi.base.context, self.abi.base.handle)
    }

    /// From now on the connection manager connects it, so that changing its state to RTR does not.
    pub fn set_managed(&self) {
        self.managed.store(true, Relaxed);
    }

    /// True if [`Self::set_managed`] was called.
    pub fn is_managed(&self) -> bool {
        self.managed.load(Relaxed)
    }

    /// The answer of `ibv_query_qp` beside the state. The connection manager sets what it has
    /// agreed on.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub fn attr(&self) -> Result<MutexGuard<'_, ibv_qp_attr>, Errno> {
        Ok(self.attr.check()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The attributes that the library was told of one over datagrams; `ENODEV` in a forked child.
    pub(super) fn told(&self) -> Result<MutexGuard<'_, DatagramAttributes>, Errno> {
        Ok(self.told.check()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The multicast groups that it is attached to; `ENODEV` in a forked child.
    pub(super) fn groups(&self) -> Result<MutexGuard<'_, Vec<IpAddr>>, Errno> {
        Ok(self.groups.check()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes of inline data that every queue pair takes.
const LEAST_INLINE: u32 = 64;

/// Makes a queue pair; the sizes it has come back in `init`.
fn create(
    pd: &Pd,
    init: &mut ibv_qp_init_attr,
    send_ops: u64,
    managed: bool,
) -> Result<*mut Qp, Errno> {
    let context = pd.context();
    let mut kind = match kind(init.qp_type) {
        // The connection manager makes no connections of that type.
        Some(kind) if kind != QpType::Uc || !managed => kind,
        _ => return Err(no_such_type(init.qp_type)),
    };
    // UCX's connection manager makes a datagram queue pair only to have a unique number: that is no
    // reason to fail where another process has the port for datagrams. A program that wants
    // datagrams learns it at the next step.
    let may_be_mere = kind == QpType::Ud
        && send_ops == 0
        && !managed
        && context.device().personality() == Personality::Roce;
    context.book.prepare()?;
    // SAFETY: the program passes queues of its own.
    let (send_cq, recv_cq, srq) =
        unsafe { (Cq::of(init.send_cq), Cq::of(init.recv_cq), Srq::of(init.srq)) };
    let (send_cq, recv_cq) = (given!(send_cq)?, given!(recv_cq)?);
    pd.check()?;
    send_cq.check()?;
    recv_cq.check()?;
    srq.map_or(Ok(()), Srq::check)?;
    // As the kernel has it, where objects are known by numbers of one context.
    let own = [send_cq.context(), recv_cq.context()].map(|its| its.is(context));
    if own.contains(&false) || srq.is_some_and(|srq| !srq.context().is(context)) {
        return Err(refuse!(
            EINVAL,
            "a completion queue or shared receive queue is of another context than the domain"
        ));
    }
    let limits = context.device().attributes();
    let cap = &mut init.cap;
    if srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    static SIZES: [Site; 4] = [const { Site::new() }; 4];
    let sizes = [
        ("max_send_wr", cap.max_send_wr, limits.max_qp_wr),
        ("max_recv_wr", cap.max_recv_wr, limits.max_qp_wr),
        ("max_send_sge", cap.max_send_sge, limits.max_sge),
        ("max_recv_sge", cap.max_recv_sge, limits.max_sge),
    ];
    for ((name, asked, most), site) in sizes.into_iter().zip(&SIZES) {
        if asked > most {
            let text = format_args!("{name} is {asked}; the device has {most} at most");
            return Err(site.refuse(libc::EINVAL, text));
        }
    }
    if cap.max_inline_data > limits.max_inline_data {
        // Programs look for the limit, which the device's attributes do not tell.
        return Err(decline!(
            EINVAL,
            "max_inline_data is {}; the device has {} at most",
            cap.max_inline_data,
            limits.max_inline_data
        ));
    }
    // Programs count on what drivers give beyond what is asked for (rdma_xclient does).
    cap.max_inline_data = cap.max_inline_data.max(LEAST_INLINE);
    let mut attributes = QueuePairAttributes::new(send_cq.queue(), recv_cq.queue());
    attributes.srq = srq.map(Srq::queue);
    attributes.max_send_wr = cap.max_send_wr as usize;
    attributes.max_recv_wr = cap.max_recv_wr as usize;
    attributes.max_send_sge = cap.max_send_sge as usize;
    attributes.max_recv_sge = cap.max_recv_sge as usize;
    attributes.max_inline = cap.max_inline_data as usize;
    attributes.qp_type = kind;
    let object = Object::new(context, Kind::Qp)?;
    let queue_pair = if managed || kind != QpType::Rc {
        match pd.domain().create_qp(&attributes) {
            Err(error) if may_be_mere && is_for_want_of_port(&error) => {
                kind = QpType::Rc;
                attributes.qp_type = kind;
                let queue_pair = pd.domain().create_qp(&attributes)?;
                // RESET takes no requests. Any state may become this one.
                let _ = queue_pair.modify(QpState::Reset);
                queue_pair
            }
            made => made?,
        }
    } else {
        pd.domain().create_addressable_qp(&attributes).inspect_err(say_no_port)?
    };
    let number = queue_pair.number();
    let mut abi = ibv_qp_ex::zeroed();
    abi.base.context = context.as_abi();
    abi.base.qp_context = init.qp_context;
    abi.base.pd = pd.as_abi();
    abi.base.send_cq = send_cq.as_abi();
    abi.base.recv_cq = recv_cq.as_abi();
    abi.base.srq = init.srq;
    abi.base.handle = object.handle();
    abi.base.qp_num = number;
    abi.base.qp_type = init.qp_type;
    // As with every device; `ibv_query_qp` tells an RNIC's real state.
    abi.base.state = AtomicU32::new(IBV_QPS_RESET);
    wr::fill(&mut abi, kind, send_ops);
    let attr = ibv_qp_attr { cap: init.cap, port_num: 1, ..ibv_qp_attr::default() };
    let qp = Box::into_raw(Box::new(Qp {
        abi,
        object,
        queue_pair,
        kind,
        domain: pd.domain().id().0,
        init: *init,
        signal_all: init.sq_sig_all != 0,
        attr: ProcessOwned::new(Mutex::new(attr)),
        told: ProcessOwned::new(Mutex::default()),
        groups: ProcessOwned::new(Mutex::default()),
        managed: AtomicBool::new(managed && kind == QpType::Rc),
        send_ops,
        builder: Builder::default(),
        _pd: pd.life.clone(),
        _send_cq: send_cq.life.clone(),
        _recv_cq: recv_cq.life.clone(),
        _srq: srq.map(|srq| srq.life.clone()),
        shown: (pd.shown_number(), srq.map_or(0, Srq::shown_number)),
    }));
    // SAFETY: just made.
    unsafe { &*qp }.show();
    context.book.enter(Key::Qp(number), qp.expose_provenance());
    Ok(qp)
}

/// Tells the user why there is no queue pair number left.
fn say_no_port(error: &io::Error) {
    if error.kind() != io::ErrorKind::OutOfMemory {
        guard::say(Log::Warn, format_args!("no TCP port for a queue pair: {error}"));
    }
}

/// True if the port for datagrams cannot be had. The library has told the user why.
fn is_for_want_of_port(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, PermissionDenied, TimedOut, WouldBlock};

    matches!(error.kind(), AddrInUse | PermissionDenied | TimedOut | WouldBlock)
}

/// The error for a queue pair of a type that is not supported; tells the user once.
pub(crate) fn no_such_type(qp_type: c_uint) -> Errno {
    let name = match qp_type {
        IBV_QPT_UC => "unreliable connected (UC)",
        IBV_QPT_UD => "datagram (UD)",
        8 => "raw packet",
        9 | 10 => "XRC",
        IBV_QPT_DRIVER => "driver-specific (IBV_QPT_DRIVER: DC of mlx5dv, SRD of efadv)",
        _ => "unknown",
    };
    // UCX takes them to set others up, unless it is told twice not to. The user has to learn the
    // setting here, as UCX gives up with "Invalid parameter".
    let why = match qp_type {
        IBV_QPT_UC | IBV_QPT_UD if does_without_datagrams() => {
            "they need the UDP port of RoCE v2 (4791), which is not available"
        }
        IBV_QPT_UC | IBV_QPT_UD => {
            "they need the UDP port of RoCE v2 (4791), which is not available; UCX does without \
             them if UCX_TLS=^ud,ud:aux"
        }
        IBV_QPT_DRIVER => {
            "they exist on one vendor's cards only; RC, UC and UD are supported (UCX: UCX_TLS=rc,ud; \
             libfabric: FI_PROVIDER=verbs)"
        }
        _ => "only RC, UC and UD are supported",
    };
    refuse!(EOPNOTSUPP, "no {name} queue pairs: {why}")
}

/// True where UCX was told already to do without them.
fn does_without_datagrams() -> bool {
    let transports = iwarp_os::environment::variable("UCX_TLS");
    transports.is_some_and(|transports| transports.split([',', '^']).any(|name| name == "ud:aux"))
}

/// `ibv_create_qp`
pub extern "C" fn ibv_create_qp(pd: &Pd, init: &mut ibv_qp_init_attr) -> *mut Qp {
    guard::object(|| create(pd, init, 0, false))
}

/// `ibv_create_qp_ex`
pub(crate) extern "C" fn create_qp_ex(
    context: &Context,
    init: &mut ibv_qp_init_attr_ex,
) -> *mut Qp {
    guard::object(|| create_ex(context, init, false))
}

/// Makes a queue pair that the connection manager will connect.
///
/// # Errors
///
/// As for `ibv_create_qp_ex`.
pub fn create_managed(context: &Context, init: &mut ibv_qp_init_attr_ex) -> Result<*mut Qp, Errno> {
    create_ex(context, init, true)
}

fn create_ex(
    context: &Context,
    init: &mut ibv_qp_init_attr_ex,
    managed: bool,
) -> Result<*mut Qp, Errno> {
    const MASK: u32 =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

    let has = |flag| init.comp_mask & flag != 0;
    let send_ops = if has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) { init.send_ops_flags } else { 0 };
    let flags = if has(IBV_QP_INIT_ATTR_CREATE_FLAGS) { init.create_flags } else { 0 };
    let unknown = init.comp_mask & !MASK;
    if unknown != 0 {
        return Err(decline!(EOPNOTSUPP, "comp_mask {unknown:#x} is not supported"));
    }
    if flags != 0 {
        return Err(decline!(EOPNOTSUPP, "create_flags {flags:#x} are not supported"));
    }
    let unknown = send_ops & !wr::supported(init.qp_type);
    if unknown != 0 {
        return Err(decline!(
            EOPNOTSUPP,
            "send_ops_flags {unknown:#x} are not supported by this type of queue pair"
        ));
    }
    if !has(IBV_QP_INIT_ATTR_PD) {
        return Err(refuse!(EINVAL, "comp_mask lacks IBV_QP_INIT_ATTR_PD"));
    }
    // SAFETY: the program passes a domain of its own.
    let pd = unsafe { Pd::of(init.pd) };
    let pd = given!(pd)?;
    if !pd.context().is(context) {
        return Err(refuse!(EINVAL, "the protection domain is of another context"));
    }
    iwarp::verbs::afford()?;
    let mut base = init.base();
    let qp = create(pd, &mut base, send_ops, managed)?;
    init.cap = base.cap;
    Ok(qp)
}

/// `ibv_qp_to_qp_ex`: null for one that was not made for it.
pub extern "C" fn ibv_qp_to_qp_ex(qp: &Qp) -> *mut ibv_qp_ex {
    if qp.send_ops == 0 { std::ptr::null_mut() } else { (&raw const qp.abi).cast_mut() }
}

/// `ibv_query_qp_data_in_order`: a message is placed from its first byte to its last.
pub extern "C" fn ibv_query_qp_data_in_order(_: &Qp, _opcode: c_uint, flags: u32) -> c_int {
    const RETURN_CAPS: u32 = 1;
    const WHOLE_MESSAGE: c_int = 1;
    const ALIGNED_128: c_int = 1 << 1;

    if flags & RETURN_CAPS != 0 { WHOLE_MESSAGE | ALIGNED_128 } else { 1 }
}

/// `ibv_destroy_qp`: waits until the events about it that the program has are acknowledged. Posted
/// requests still go out, in the background. Refused while it is attached to a multicast group.
pub extern "C" fn ibv_destroy_qp(qp: *mut Qp) -> c_int {
    guard::errno(|| {
        // SAFETY: the program has it from a function of this library.
        let object = unsafe { &*qp };
        object.check()?;
        let groups = object.groups().map_or(0, |groups| groups.len());
        if groups > 0 {
            return Err(refuse!(
                EBUSY,
                "queue pair {} is attached to {groups} multicast groups (ibv_detach_mcast)",
                object.number()
            ));
        }
        // The parent's, in a forked child: nothing is entered under its number.
        if !object.queue_pair.is_inherited() {
            object.leave_context();
        }
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(qp) });
        Ok(())
    })
}

impl Qp {
    /// Drops its completions that the program has not taken: as with other devices, a program that
    /// destroys or resets a queue pair sees nothing of it afterwards.
    pub(crate) fn forget_completions(&self) {
        for cq in [self.abi.base.send_cq, self.abi.base.recv_cq] {
            // SAFETY: the queues stay while this holds their lives.
            if let Some(cq) = unsafe { Cq::of(cq) } {
                cq.queue().discard(self.number());
            }
        }
    }

    /// Prepares for its end: waits for its acknowledgements, and has nothing told of it any more.
    fn leave_context(&self) {
        let (number, context) = (self.number(), self.context());
        context.book.strike(Key::Qp(number));
        // First, as the worker goes on meanwhile: a program frees what completions and events name.
        self.queue_pair.retire();
        context.device().discard_async_events(|event| match event {
            AsyncEvent::QpFatal { qp }
            | AsyncEvent::QpAccessError { qp }
            | AsyncEvent::QpRequestError { qp }
            | AsyncEvent::CommunicationEstablished { qp }
            | AsyncEvent::SendQueueDrained { qp }
            | AsyncEvent::LastReceiveReached { qp } => *qp == number,
            _ => false,
        });
        self.forget_completions();
    }

    /// The domain that the program made it with.
    pub fn pd(&self) -> *mut ibv_pd {
        self.abi.base.pd
    }
}
