// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attributes of queue pairs as the header has them: their numbers, names and values.

use std::ffi::c_uint;

use iwarp::QpState;

use super::Context;
use crate::abi::flags::*;
use crate::abi::ibv_qp_attr;
use crate::guard::Errno;
use crate::refuse::{Site, decline, refuse};

/// Every attribute that the header of a reliable connected queue pair has.
const KNOWN: u32 = (IBV_QP_DEST_QPN << 1) - 1;

pub(super) fn number(state: QpState) -> c_uint {
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
pub(super) fn check_values(context: &Context, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    let has = |flag| mask & flag != 0;
    let limits = context.device().attributes();
    let (reads, served): (u32, u32) =
        (limits.max_qp_init_rd_atom.into(), limits.max_qp_rd_atom.into());
    let ports = limits.phys_port_cnt.into();
    static VALUES: [Site; 11] = [const { Site::new() }; 11];
    let values = [
        (IBV_QP_PORT, "port_num", u32::from(attr.port_num), 1, ports),
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
        (IBV_QP_AV, "ah_attr.port_num", attr.ah_attr.port_num.into(), 1, ports),
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
