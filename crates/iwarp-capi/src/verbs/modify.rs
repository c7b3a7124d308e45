// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of queue pairs, and their attributes.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering::Relaxed;

use iwarp::verbs::ModifyError;
use iwarp::{Access, Peer, Personality, QpState, QpType, Retry};
use iwarp_os::roster;

use super::qp::{Qp, no_such_type};
use super::{ah, datagram};
use crate::abi::flags::*;
use crate::abi::{ibv_qp_attr, ibv_qp_init_attr};
use crate::guard::{self, Errno};
use crate::refuse::{Site, decline, refuse};

/// Every attribute that the header of a reliable connected queue pair has.
const KNOWN: u32 = (IBV_QP_DEST_QPN << 1) - 1;

fn number(state: QpState) -> c_uint {
    match state {
        QpState::Reset => IBV_QPS_RESET,
        QpState::Init => IBV_QPS_INIT,
        QpState::Rtr => IBV_QPS_RTR,
        QpState::Rts => IBV_QPS_RTS,
        QpState::Sqd => IBV_QPS_SQD,
        QpState::Sqe => IBV_QPS_SQE,
        // No other state exists.
        _ => IBV_QPS_ERR,
    }
}

pub(super) fn state(number: c_uint) -> Result<QpState, Errno> {
    Ok(match number {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Err,
        _ => return Err(refuse!(EINVAL, "{number} is no state of queue pairs (IBV_QPS_...)")),
    })
}

/// The attributes that a reliable connected queue pair must be told on its way to INIT.
pub const OF_INIT: u32 = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
/// The attributes that it must be told on its way to RTR.
pub const OF_RTR: u32 = IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
/// The attributes that it must be told on its way to RTS.
pub const OF_RTS: u32 =
    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

/// The attributes for which InfiniBand asks with each step of a reliable connected queue pair.
fn required(from: QpState, to: QpState) -> u32 {
    match (from, to) {
        (QpState::Reset, QpState::Init) => OF_INIT,
        (QpState::Init, QpState::Rtr) => OF_RTR,
        (QpState::Rtr, QpState::Rts) => OF_RTS,
        _ => 0,
    }
}

/// A state's name in the header, without its prefix.
pub(super) const fn name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        _ => "ERR",
    }
}

/// The names of the attributes in a mask.
pub(super) fn names(mask: u32) -> String {
    const NAMES: [&str; 21] = [
        "STATE",
        "CUR_STATE",
        "EN_SQD_ASYNC_NOTIFY",
        "ACCESS_FLAGS",
        "PKEY_INDEX",
        "PORT",
        "QKEY",
        "AV",
        "PATH_MTU",
        "TIMEOUT",
        "RETRY_CNT",
        "RNR_RETRY",
        "RQ_PSN",
        "MAX_QP_RD_ATOMIC",
        "ALT_PATH",
        "MIN_RNR_TIMER",
        "SQ_PSN",
        "MAX_DEST_RD_ATOMIC",
        "PATH_MIG_STATE",
        "CAP",
        "DEST_QPN",
    ];
    let named = |bit: u32| match NAMES.get(bit as usize) {
        Some(name) => format!("IBV_QP_{name}"),
        None => format!("{:#x}", 1_u32 << bit),
    };
    let set = (0..u32::BITS).filter(|bit| mask & 1 << bit != 0);
    set.map(named).collect::<Vec<_>>().join(", ")
}

/// The error for a step that does not exist.
#[cold]
pub(super) fn no_step(from: QpState, to: QpState) -> Errno {
    let hint = match (from, to) {
        (QpState::Reset, QpState::Rtr | QpState::Rts) => "; the steps are RESET, INIT, RTR, RTS",
        (QpState::Init, QpState::Rts) => "; RTR comes between",
        (QpState::Err | QpState::Sqe, _) => "; RESET comes first (its completions say why)",
        _ => "",
    };
    refuse!(EINVAL, "a queue pair does not go from {} to {}{hint}", name(from), name(to))
}

/// The error for a step that needs attributes which are not set.
#[cold]
pub(super) fn lacks(from: QpState, to: QpState, missing: u32) -> Errno {
    let missing = names(missing);
    refuse!(EINVAL, "from {} to {} the mask needs {missing} too", name(from), name(to))
}

/// Refuses unknown attributes, and a current state other than the program thinks.
pub(super) fn check_mask(attr: &ibv_qp_attr, mask: u32, from: QpState) -> Result<(), Errno> {
    if mask & !KNOWN != 0 {
        return Err(refuse!(EINVAL, "the mask has unknown bits: {:#x}", mask & !KNOWN));
    }
    if mask & IBV_QP_CUR_STATE != 0 && state(attr.cur_qp_state)? != from {
        let given = name(state(attr.cur_qp_state)?);
        return Err(refuse!(
            EINVAL,
            "cur_qp_state is {given}; the queue pair is in {}",
            name(from)
        ));
    }
    Ok(())
}

/// Checks that the values that are set are in range.
pub(super) fn check_values(qp: &Qp, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    let has = |flag| mask & flag != 0;
    let limits = qp.context().device().attributes();
    let (reads, served): (u32, u32) =
        (limits.max_qp_init_rd_atom.into(), limits.max_qp_rd_atom.into());
    static VALUES: [Site; 11] = [const { Site::new() }; 11];
    let values = [
        (IBV_QP_PORT, "port_num", u32::from(attr.port_num), 1, 1),
        (IBV_QP_PKEY_INDEX, "pkey_index", attr.pkey_index.into(), 0, 0),
        (IBV_QP_PATH_MTU, "path_mtu", attr.path_mtu, 1, 5),
        (IBV_QP_TIMEOUT, "timeout", attr.timeout.into(), 0, 31),
        (IBV_QP_RETRY_CNT, "retry_cnt", attr.retry_cnt.into(), 0, 7),
        (IBV_QP_RNR_RETRY, "rnr_retry", attr.rnr_retry.into(), 0, 7),
        (IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer.into(), 0, 31),
        (IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic.into(), 0, reads),
        (
            IBV_QP_MAX_DEST_RD_ATOMIC,
            "max_dest_rd_atomic",
            attr.max_dest_rd_atomic.into(),
            0,
            served,
        ),
        (IBV_QP_DEST_QPN, "dest_qp_num", attr.dest_qp_num, 0, 0x00ff_ffff),
        (IBV_QP_AV, "ah_attr.port_num", attr.ah_attr.port_num.into(), 1, 1),
    ];
    for ((flag, name, value, least, most), site) in values.into_iter().zip(&VALUES) {
        if has(flag) && !(least..=most).contains(&value) {
            let text = format_args!("{name} is {value}; it can be {least} to {most}");
            return Err(site.refuse(libc::EINVAL, text));
        }
    }
    // No queue pair has two paths here, and none changes its size.
    if has(IBV_QP_ALT_PATH | IBV_QP_CAP) {
        return Err(decline!(EOPNOTSUPP, "IBV_QP_ALT_PATH and IBV_QP_CAP are not supported"));
    }
    Ok(())
}

/// Takes over the attributes that are set.
pub(crate) fn store(to: &mut ibv_qp_attr, from: &ibv_qp_attr, mask: u32) {
    macro_rules! take {
        ($($flag:ident => $($field:ident),+;)*) => {
            $(if mask & $flag != 0 { $(to.$field = from.$field;)+ })*
        };
    }
    take! {
        IBV_QP_EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify;
        IBV_QP_ACCESS_FLAGS => qp_access_flags;
        IBV_QP_PKEY_INDEX => pkey_index;
        IBV_QP_PORT => port_num;
        IBV_QP_QKEY => qkey;
        IBV_QP_AV => ah_attr;
        IBV_QP_PATH_MTU => path_mtu;
        IBV_QP_TIMEOUT => timeout;
        IBV_QP_RETRY_CNT => retry_cnt;
        IBV_QP_RNR_RETRY => rnr_retry;
        IBV_QP_RQ_PSN => rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC => max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER => min_rnr_timer;
        IBV_QP_SQ_PSN => sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        IBV_QP_PATH_MIG_STATE => path_mig_state;
        IBV_QP_DEST_QPN => dest_qp_num;
    }
}

impl From<ModifyError> for Errno {
    fn from(error: ModifyError) -> Self {
        match error {
            ModifyError::System(error) => error.into(),
            error => refuse!(EINVAL, "{error}"),
        }
    }
}

impl Qp {
    /// The state that the program sees. If the connection manager connects, the program's own steps
    /// on the way are only noted.
    pub(crate) fn state(&self) -> QpState {
        match self.queue_pair.state() {
            QpState::Init if self.is_managed() => {
                state(self.shown_state()).unwrap_or(QpState::Init)
            }
            state => state,
        }
    }

    fn shown_state(&self) -> c_uint {
        self.abi.base.state.load(Relaxed)
    }

    /// Has the program see this state (`IBV_QPS_...`).
    pub fn show_state(&self, state: c_uint) {
        self.abi.base.state.store(state, Relaxed);
        self.show();
    }

    /// Has other processes see it as it is now.
    pub(crate) fn show(&self) {
        let (domain, srq) = self.shown;
        let pair = || {
            let attr = self.attr().map(|attr| *attr).unwrap_or_default();
            roster::Pair {
                number: self.number(),
                remote: attr.dest_qp_num,
                // Programs that draw 32 bits leave it to the hardware to drop some.
                rq_psn: attr.rq_psn & 0x00ff_ffff,
                sq_psn: attr.sq_psn & 0x00ff_ffff,
                srq,
                kind: self.init.qp_type as u8,
                state: number(self.state()) as u8,
            }
        };
        self.object.show(domain, || roster::Object::Pair(pair()));
    }

    /// Updates the field `state`: for the connection manager, when it has connected the queue pair
    /// or its connection has ended.
    pub fn refresh_state(&self) {
        self.refreshed_state();
    }

    /// Likewise, and returns the state.
    fn refreshed_state(&self) -> c_uint {
        loop {
            let (before, now) = (self.shown_state(), number(self.state()));
            // A state that another thread has shown meanwhile is newer than the one found here.
            let shown = &self.abi.base.state;
            if shown.compare_exchange(before, now, Relaxed, Relaxed).is_ok() {
                if before != now {
                    self.show();
                }
                return now;
            }
        }
    }

    /// Sets the local ACK timeout that `RDMA_OPTION_ID_ACK_TIMEOUT` asks for, coded as in the field
    /// `timeout`.
    pub fn set_timeout(&self, timeout: u8) {
        let Ok(mut attr) = self.attr() else { return };
        attr.timeout = timeout;
        self.queue_pair.set_retry(retry(&attr));
    }

    /// Moves it to the error state, which flushes what was posted.
    pub fn fail(&self) {
        // Any state may become that one.
        let _ = self.queue_pair.modify(QpState::Err);
        self.show_state(IBV_QPS_ERR);
    }
}

/// The retry limits that the program has set.
fn retry(attr: &ibv_qp_attr) -> Retry {
    let timeout = (attr.timeout != 0).then(|| Retry::local_ack_timeout(attr.timeout));
    Retry::new(timeout, attr.retry_cnt)
}

/// The peer that the program names when it takes the queue pair to RTR.
fn peer(qp: &Qp, attr: &ibv_qp_attr) -> Result<Peer, Errno> {
    let (way, device) = (&attr.ah_attr, qp.context().device());
    // Programs that draw 32 bits leave it to the hardware to drop some.
    let psn = attr.rq_psn & 0x00ff_ffff;
    let mut peer = if way.is_global != 0 {
        let local = qp.context().source(way.grh.sgid_index)?;
        let addr = ah::destination(&way.grh.dgid.raw)?;
        Peer::new(&local, addr, attr.dest_qp_num, psn)
    } else {
        Peer::from_lid(device, way.dlid, attr.dest_qp_num, psn)?
    };
    peer.ird = attr.max_dest_rd_atomic.into();
    Ok(peer)
}

/// A step of a queue pair that the connection manager does not look after.
fn step(qp: &Qp, from: QpState, to: QpState, mask: u32) -> Result<(), Errno> {
    if (from, to) == (QpState::Init, QpState::Rtr) {
        if mask & (IBV_QP_AV | IBV_QP_DEST_QPN) != IBV_QP_AV | IBV_QP_DEST_QPN {
            return Err(lacks(from, to, (IBV_QP_AV | IBV_QP_DEST_QPN) & !mask));
        }
        let attr = *qp.attr()?;
        let peer = peer(qp, &attr)?;
        datagram::tell_reliable(qp, &attr)?;
        return Ok(qp.queue_pair.connect_to(&peer)?);
    }
    if (from, to) == (QpState::Rtr, QpState::Rts) {
        let attr = *qp.attr()?;
        datagram::tell_reliable(qp, &attr)?;
        qp.queue_pair.set_psn(attr.sq_psn);
        qp.queue_pair.set_retry(retry(&attr));
    }
    Ok(qp.queue_pair.modify(to)?)
}

/// As `ibv_modify_qp`.
///
/// # Errors
///
/// As there.
pub fn modify(qp: &Qp, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    if qp.is_mere_number() {
        return Err(no_such_type(qp.init.qp_type));
    }
    if qp.kind != QpType::Rc {
        return datagram::modify(qp, attr, mask);
    }
    let from = qp.state();
    if mask & IBV_QP_RATE_LIMIT != 0 {
        return Err(decline!(EOPNOTSUPP, "IBV_QP_RATE_LIMIT is not supported"));
    }
    check_mask(attr, mask, from)?;
    check_values(qp, attr, mask)?;
    if mask & IBV_QP_STATE == 0 {
        store(&mut *qp.attr()?, attr, mask);
        restrict(qp, attr, mask);
        qp.show();
        return Ok(());
    }
    let to = state(attr.qp_state)?;
    // The connection manager may be faster than a program that brings its own queue pair, which
    // takes its steps only now.
    if qp.is_managed()
        && matches!(from, QpState::Rts | QpState::Sqd)
        && matches!(to, QpState::Init | QpState::Rtr)
    {
        store(&mut *qp.attr()?, attr, mask);
        qp.show();
        return Ok(());
    }
    let strict = qp.context().device().personality() == Personality::Roce && !qp.is_managed();
    if !from.may_become(to) {
        return Err(no_step(from, to));
    }
    let missing = required(from, to) & !mask;
    if strict && missing != 0 {
        return Err(lacks(from, to, missing));
    }
    // The connection manager says to programs that bring their own queue pair what to set, and it
    // knows no number of the peer's.
    if (from, to) == (QpState::Init, QpState::Rtr)
        && (mask & IBV_QP_DEST_QPN == 0 || attr.dest_qp_num == 0)
    {
        qp.set_managed();
    }
    store(&mut *qp.attr()?, attr, mask);
    let only_noted = qp.is_managed()
        && qp.queue_pair.state() == QpState::Init
        && matches!(to, QpState::Init | QpState::Rtr | QpState::Rts);
    if !only_noted {
        step(qp, from, to, mask)?;
    }
    if to == QpState::Reset {
        qp.forget_completions();
    }
    restrict(qp, attr, mask);
    qp.show_state(attr.qp_state);
    Ok(())
}

/// Sets the rights of the peer, and of the program itself.
fn restrict(qp: &Qp, attr: &ibv_qp_attr, mask: u32) {
    if mask & IBV_QP_MAX_QP_RD_ATOMIC != 0 {
        qp.queue_pair.set_reads(attr.max_rd_atomic != 0);
    }
    if mask & IBV_QP_RNR_RETRY != 0 {
        qp.queue_pair.set_rnr_retry(attr.rnr_retry);
    }
    if mask & IBV_QP_MIN_RNR_TIMER != 0 {
        qp.queue_pair.set_rnr_timer(attr.min_rnr_timer);
    }
    if mask & IBV_QP_ACCESS_FLAGS != 0 {
        // `Access` has the header's numbers.
        qp.queue_pair.set_remote_access(Access::from_bits_truncate(attr.qp_access_flags));
    }
}

/// `ibv_modify_qp`
pub extern "C" fn ibv_modify_qp(qp: &Qp, attr: &ibv_qp_attr, mask: c_int) -> c_int {
    guard::errno(|| {
        qp.check()?;
        modify(qp, attr, mask.cast_unsigned())
    })
}

/// `ibv_query_qp`
pub extern "C" fn ibv_query_qp(
    qp: &Qp,
    attr: &mut ibv_qp_attr,
    _mask: c_int,
    init: &mut ibv_qp_init_attr,
) -> c_int {
    guard::errno(|| {
        qp.check()?;
        let state = qp.refreshed_state();
        *attr = *qp.attr()?;
        attr.qp_state = state;
        attr.cur_qp_state = attr.qp_state;
        *init = qp.init;
        Ok(())
    })
}
