// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making queue pairs.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use iwarp::{Log, Personality, QpState, QpType, QueuePairAttributes};
use iwarp_os::ProcessOwned;

use super::book::Key;
use super::builder::Builder;
use super::counts::Kind;
use super::cq::Cq;
use super::object::Object;
use super::pd::Pd;
use super::qp::Qp;
use super::qp_type::{kind, no_such_type};
use super::srq::Srq;
use super::{Context, wr};
use crate::abi::flags::*;
use crate::abi::{Plain, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{Site, decline, given, refuse};

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
    // SAFETY: as above.
    unsafe { &*qp }.show_way();
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

/// `ibv_create_qp`
pub extern "C" fn ibv_create_qp(pd: &Pd, init: &mut ibv_qp_init_attr) -> *mut Qp {
    guard::object(called!(ibv_create_qp(pd, init)), || create(pd, init, 0, false))
}

/// `ibv_create_qp_ex`
pub(crate) extern "C" fn create_qp_ex(
    context: &Context,
    init: &mut ibv_qp_init_attr_ex,
) -> *mut Qp {
    guard::object(called!(ibv_create_qp_ex(context, init)), || create_ex(context, init, false))
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
