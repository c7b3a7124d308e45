// SPDX-License-Identifier: MIT OR Apache-2.0

//! Advice about memory regions: what will be used soon.

use std::ffi::{c_int, c_uint};

use iwarp::verbs::{Prefetch, PrefetchError};

use super::packed;
use super::pd::Pd;
use crate::abi::flags::*;
use crate::abi::ibv_sge;
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

impl From<PrefetchError> for Errno {
    fn from(error: PrefetchError) -> Self {
        match error {
            PrefetchError::UnknownStag => refuse!(ENOENT, "{error}"),
            PrefetchError::NotPermitted => refuse!(EPERM, "{error}"),
            PrefetchError::NotThere => refuse!(EFAULT, "{error}"),
            // Not a region.
            _ => refuse!(EINVAL, "{error}"),
        }
    }
}

/// `ibv_advise_mr`. All elements are checked before anything is done. Memory is brought by the
/// caller's thread in any case; without `IBV_ADVISE_MR_FLAG_FLUSH` it is not told of memory that
/// cannot be. A region need not be on demand: librpma advises on others, and takes a refusal for
/// the end.
pub(crate) extern "C" fn advise_mr(
    pd: &Pd,
    advice: c_uint,
    flags: u32,
    list: *const ibv_sge,
    count: u32,
) -> c_int {
    guard::errno(called!(ibv_advise_mr(pd, advice, flags, list, count)), || {
        let what = match advice {
            IBV_ADVISE_MR_ADVICE_PREFETCH => Prefetch::Read,
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Prefetch::Write,
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Prefetch::NoFault,
            _ => return Err(decline!(EOPNOTSUPP, "the advice {advice} is not known")),
        };
        if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || count == 0 || list.is_null() {
            return Err(refuse!(EINVAL, "flags {flags:#x}, {count} elements at {list:p}"));
        }
        // SAFETY: the program passes as many elements.
        let sges = || unsafe { packed::sges(list, count as usize) };
        sges().try_for_each(|sge| pd.domain().check_advice(sge, what))?;
        for sge in sges() {
            let brought = pd.domain().prefetch(sge, what);
            if flags & IBV_ADVISE_MR_FLAG_FLUSH != 0 {
                brought?;
            }
        }
        Ok(())
    })
}
