// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs over datagrams: of the types UC and UD.

use std::ffi::c_uint;

use iwarp::{Access, DatagramAttributes, QpState, QpType};

use super::ah;
use super::attributes::{check_mask, check_values, lacks, name, names, no_step, state, store};
use super::qp::Qp;
use super::query::path_octets;
use crate::abi::flags::*;
use crate::abi::ibv_qp_attr;
use crate::guard::Errno;
use crate::refuse::{decline, refuse};

/// Bits of a packet sequence number (PSN).
const PSN_BITS: u32 = 0x00ff_ffff;

/// Bytes of a path MTU by its number in the header.
const fn octets_of(path_mtu: c_uint) -> u32 {
    128 << path_mtu
}

/// The attributes that a step requires, and its optional ones; `None` if there is no such step. As
/// the kernel has it for all devices.
fn terms(kind: QpType, from: QpState, to: QpState) -> Option<(u32, u32)> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const ON_THE_WAY: u32 = IBV_QP_CUR_STATE | IBV_QP_PATH_MIG_STATE;

    let is_ud = kind == QpType::Ud;
    // The rights that a queue pair of the type gives to others.
    let rights = if is_ud { IBV_QP_QKEY } else { IBV_QP_ACCESS_FLAGS };
    let place = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    let later = if is_ud { IBV_QP_CUR_STATE } else { ON_THE_WAY | IBV_QP_ALT_PATH } | rights;
    Some(match (from, to) {
        (_, Reset | Err) => (0, 0),
        (Reset, Init) => (place | rights, 0),
        (Init, Init) => (0, place | rights),
        (Init, Rtr) if is_ud => (0, IBV_QP_PKEY_INDEX | rights),
        (Init, Rtr) => (
            IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
            IBV_QP_PKEY_INDEX | IBV_QP_ALT_PATH | rights,
        ),
        (Rtr, Rts) => (IBV_QP_SQ_PSN, later),
        (Rts | Sqd, Rts) => (0, later),
        (Sqe, Rts) => (0, IBV_QP_CUR_STATE | rights),
        (Rts, Sqd) => (0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) if is_ud => (0, IBV_QP_PKEY_INDEX | rights),
        (Sqd, Sqd) => {
            let path = IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
            (0, path | IBV_QP_PKEY_INDEX | rights)
        }
        _ => return None,
    })
}

/// `ibv_modify_qp`. Mistakes are refused before anything has changed.
pub(super) fn modify(qp: &Qp, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    let from = qp.state();
    if mask & IBV_QP_RATE_LIMIT != 0 {
        return Err(decline!(EOPNOTSUPP, "IBV_QP_RATE_LIMIT is not supported"));
    }
    check_mask(attr, mask, from)?;
    let to = if mask & IBV_QP_STATE != 0 { state(attr.qp_state)? } else { from };
    let (required, optional) = terms(qp.kind, from, to).ok_or_else(|| no_step(from, to))?;
    let given = mask & !IBV_QP_STATE;
    if given & required != required {
        return Err(lacks(from, to, required & !given));
    }
    let beyond = given & !(required | optional);
    if beyond != 0 {
        return Err(refuse!(
            EINVAL,
            "a {} queue pair cannot be told {} on its way from {} to {}",
            if qp.kind == QpType::Ud { "UD" } else { "UC" },
            names(beyond),
            name(from),
            name(to)
        ));
    }
    check_values(qp.context(), attr, mask)?;
    qp.enter_port(attr, mask)?;
    tell(qp, attr, mask, (from, to) == (QpState::Init, QpState::Rtr))?;
    if from != to {
        qp.queue_pair.modify(to)?;
    }
    store(&mut *qp.attr()?, attr, mask);
    if to == QpState::Reset {
        qp.forget_completions();
    }
    if mask & IBV_QP_STATE != 0 {
        qp.show_state(attr.qp_state);
    }
    Ok(())
}

/// Tells the library what is set.
fn tell(qp: &Qp, attr: &ibv_qp_attr, mask: u32, to_rtr: bool) -> Result<(), Errno> {
    let has = |flag| mask & flag != 0;
    let mut told = qp.told()?;
    let mut now = *told;
    if to_rtr && qp.kind == QpType::Ud {
        // A message is one packet, and any of the port's addresses may be its way out.
        now.path_mtu = path_octets(qp.context(), qp.attr()?.port_num)?;
    }
    if has(IBV_QP_AV) {
        now.address = Some(ah::way(qp.context(), &attr.ah_attr)?);
    }
    if has(IBV_QP_QKEY) {
        now.qkey = attr.qkey;
    }
    if has(IBV_QP_ACCESS_FLAGS) {
        // `Access` has the header's numbers.
        now.access = Access::from_bits_truncate(attr.qp_access_flags);
    }
    if has(IBV_QP_PATH_MTU) {
        now.path_mtu = octets_of(attr.path_mtu);
    }
    if has(IBV_QP_DEST_QPN) {
        now.dest_qp = attr.dest_qp_num;
    }
    // Programs that draw 32 bits leave it to the hardware to drop some.
    if has(IBV_QP_RQ_PSN) {
        now.rq_psn = attr.rq_psn & PSN_BITS;
    }
    if has(IBV_QP_SQ_PSN) {
        now.sq_psn = attr.sq_psn & PSN_BITS;
    }
    qp.queue_pair.set_datagram(&now)?;
    *told = now;
    Ok(())
}

/// Likewise, of one of the type RC.
pub(super) fn tell_reliable(qp: &Qp, attr: &ibv_qp_attr) -> Result<(), Errno> {
    if !qp.queue_pair.may_use_datagrams() {
        return Ok(());
    }
    let now = DatagramAttributes::default()
        .address(ah::way(qp.context(), &attr.ah_attr).ok())
        .dest_qp(attr.dest_qp_num)
        .path_mtu(octets_of(attr.path_mtu))
        .sq_psn(attr.sq_psn & PSN_BITS)
        .rq_psn(attr.rq_psn & PSN_BITS)
        .timeout(attr.timeout)
        .retry_count(attr.retry_cnt)
        .rnr_retry(attr.rnr_retry)
        .min_rnr_timer(attr.min_rnr_timer)
        .max_rd_atomic(attr.max_rd_atomic)
        .max_dest_rd_atomic(attr.max_dest_rd_atomic)
        // `Access` has the header's numbers.
        .access(Access::from_bits_truncate(attr.qp_access_flags));
    Ok(qp.queue_pair.set_datagram(&now)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];

    #[test]
    fn steps_are_those_of_the_verbs() {
        for kind in [QpType::Uc, QpType::Ud] {
            for (from, to) in STATES.iter().flat_map(|from| STATES.map(|to| (*from, to))) {
                let stays = from == to;
                let may = match from {
                    // Attributes cannot be set there.
                    QpState::Rtr | QpState::Sqe if stays => false,
                    _ => stays || from.may_become(to),
                };
                assert_eq!(terms(kind, from, to).is_some(), may, "{kind:?} {from:?} {to:?}");
            }
        }
    }

    #[test]
    fn each_type_has_what_it_needs() {
        let ud = |from, to| terms(QpType::Ud, from, to).unwrap();
        let uc = |from, to| terms(QpType::Uc, from, to).unwrap();
        let (reset, init, rtr, rts) = (STATES[0], STATES[1], STATES[2], STATES[3]);
        assert_eq!(ud(reset, init).0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
        assert_eq!(uc(reset, init).0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        assert_eq!(ud(init, rtr), (0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY));
        assert_eq!(ud(rtr, rts), (IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY));
        assert_eq!(ud(rts, rts), (0, IBV_QP_CUR_STATE | IBV_QP_QKEY));
        // UC has no acknowledgements, so there is nothing to repeat and to wait for.
        let of_rc = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        let (required, optional) = uc(init, rtr);
        assert_eq!((required | optional) & of_rc, 0);
        assert_eq!(required & IBV_QP_AV, IBV_QP_AV);
    }
}
