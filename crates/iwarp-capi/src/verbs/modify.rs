// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of queue pairs, and their attributes.

use std::ffi::c_int;

use iwarp::verbs::ModifyError;
use iwarp::{Access, Peer, Personality, QpState, QpType, Retry, faults};

use super::attributes::{check_mask, check_values, lacks, no_step, state, store};
use super::qp::Qp;
use super::qp_type::no_such_type;
use super::{ah, datagram};
use crate::abi::flags::*;
use crate::abi::{ibv_qp_attr, ibv_qp_init_attr};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

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

impl From<ModifyError> for Errno {
    fn from(error: ModifyError) -> Self {
        match error {
            ModifyError::System(error) => error.into(),
            error => refuse!(EINVAL, "{error}"),
        }
    }
}

impl Qp {
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
    let (way, port) = (&attr.ah_attr, attr.ah_attr.port_num);
    // Programs that draw 32 bits leave it to the hardware to drop some.
    let psn = attr.rq_psn & 0x00ff_ffff;
    let mut peer = if way.is_global != 0 {
        let local = qp.context().source(port, way.grh.sgid_index)?;
        let addr = ah::destination(&way.grh.dgid.raw)?;
        Peer::new(&local, addr, attr.dest_qp_num, psn)
    } else {
        let gids = qp.context().device().port_gid_table(port)?;
        Peer::from_lid_at(&gids, way.dlid, attr.dest_qp_num, psn)?
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
    check_values(qp.context(), attr, mask)?;
    if mask & IBV_QP_STATE == 0 {
        qp.enter_port(attr, mask)?;
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
    qp.enter_port(attr, mask)?;
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
    guard::errno(called!(ibv_modify_qp(qp, attr, mask)), || {
        qp.check()?;
        if let Some(number) = faults::of_call_on("ibv_modify_qp", qp.number()) {
            return Err(Errno::plain(number));
        }
        modify(qp, attr, mask.cast_unsigned())
    })
}

/// `ibv_query_qp`
pub extern "C" fn ibv_query_qp(
    qp: &Qp,
    attr: &mut ibv_qp_attr,
    mask: c_int,
    init: &mut ibv_qp_init_attr,
) -> c_int {
    guard::errno(called!(ibv_query_qp(qp, attr, mask, init)), || {
        qp.check()?;
        let state = qp.refreshed_state();
        *attr = *qp.attr()?;
        attr.qp_state = state;
        attr.cur_qp_state = attr.qp_state;
        *init = qp.init;
        Ok(())
    })
}
