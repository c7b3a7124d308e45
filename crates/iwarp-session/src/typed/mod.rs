// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory as values in place of bytes (feature `zerocopy`).
//!
//! [`ExposedSlice`] is what one end exposes, [`RemoteSlice`] what the other makes of its grant, and
//! a [`TypedBlock`] is a block of such values. All three count in elements and check bounds.
//!
//! # Byte order
//!
//! Values go over the wire as they are in memory: integers in the order of the host that wrote
//! them. Both ends must agree on the type, its layout (`#[repr(C)]`, without padding) and its byte
//! order. The types of [`zerocopy::byteorder`] have the same bytes on every host; with `u32` or
//! `f64` both hosts have to be of one kind. The atomic operations always work in the byte order of
//! the host whose memory it is.
//!
//! ```
//! use iwarp::Access;
//! use iwarp_session::{ExposedSlice, RemoteGrant, RemoteSlice, TypedBlock};
//! use zerocopy::little_endian::{F64, U32};
//! use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
//!
//! #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
//! #[repr(C)]
//! struct Sample {
//!     time: U32,
//!     value: F64,
//! }
//!
//! # use iwarp_session::{Listener, Session};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let pd = iwarp::Device::open()?.alloc_pd();
//! # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
//! # let connecting = Session::connect(&pd, listener.local_addr().ok_or("no address")?);
//! # let _peer = Session::accept(listener.accept().wait()?).wait()?;
//! # let session = connecting.wait()?;
//! // One end:
//! let samples = ExposedSlice::<Sample>::new(&pd, 1000, Access::REMOTE)?;
//! samples.set(7, &Sample { time: 70.into(), value: 0.5.into() })?;
//! let bytes = samples.grant().to_octets();
//!
//! // The other:
//! let samples: RemoteSlice<Sample> = RemoteGrant::from_octets(&bytes).typed()?;
//! assert_eq!(samples.len(), 1000);
//! let [seventh] = samples.read(&session, 7).wait()?;
//! assert_eq!(seventh.time, 70);
//! let mut new = TypedBlock::new(&pd, 2)?;
//! new.fill(Sample { time: 80.into(), value: 0.25.into() });
//! samples.write(&session, 8, new).wait()?;
//! let some: Vec<Sample> = samples.read_range(&session, 7..10).wait()?;
//! assert_eq!(some[2].value, 0.25);
//! # Ok(())
//! # }
//! ```

mod block;
mod exposed;
mod remote;

use iwarp_types::WorkCompletion;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::block::TypedBlock;
pub use self::exposed::ExposedSlice;
pub use self::remote::{RemoteSlice, Word};
use crate::Block;
use crate::cargo::Cargo;
use crate::outcome::sealed::Outcome;

/// Values that are their bytes, and any bytes are such a value: all types that derive these four
/// traits of [`zerocopy`]. A type without bytes does not compile.
pub trait Element: FromBytes + IntoBytes + KnownLayout + Immutable + Sized {}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable> Element for T {}

/// Bytes of an element.
const fn size<T>() -> usize {
    const { assert!(size_of::<T>() > 0, "an element has bytes") };
    size_of::<T>()
}

/// Bytes that are no elements: not a whole number of them, or not where they may begin. It contains
/// the value that was given.
#[derive(Debug, thiserror::Error)]
#[error("{len} bytes at {start} are no elements of {size} bytes, aligned to {align}")]
#[non_exhaustive]
pub struct LayoutError<B> {
    /// The value that was given.
    pub given: B,
    start: u64,
    len: u64,
    size: usize,
    align: usize,
}

impl<B> LayoutError<B> {
    fn new<T>(given: B, start: u64, len: u64) -> Self {
        Self { given, start, len, size: size_of::<T>(), align: align_of::<T>() }
    }
}

/// Elements that do not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{count} elements from {first} on, of {len}")]
#[non_exhaustive]
pub struct OutOfBounds {
    /// The first of them.
    pub first: usize,
    /// The number that they would be.
    pub count: usize,
    /// The number of elements.
    pub len: usize,
}

/// The elements that a Read brought.
impl<T: Element> Outcome for Vec<T> {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        let block = cargo.one()?;
        block.chunks_exact(size::<T>()).map(|bytes| T::read_from_bytes(bytes).ok()).collect()
    }
}

/// The elements that a Read brought.
impl<T: Element, const N: usize> Outcome for [T; N] {
    fn new(_: &WorkCompletion, cargo: Cargo<Block>) -> Option<Self> {
        Self::read_from_bytes(&cargo.one()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use iwarp_types::{QpId, WcOp, WcStatus};

    use super::*;
    use crate::testing::domain;

    fn read(octets: &[u8]) -> (WorkCompletion, Cargo<Block>) {
        let mut block = Block::new(&domain(), octets.len()).unwrap();
        block.fill_from(octets);
        (WorkCompletion::new(1, QpId(1), WcOp::Read, WcStatus::Success), Cargo::One(block))
    }

    #[test]
    fn an_array_takes_its_number_of_bytes_and_no_other() {
        let array = |octets: &[u8]| {
            let (completion, cargo) = read(octets);
            <[[u8; 2]; 2] as Outcome>::new(&completion, cargo)
        };
        assert_eq!(array(b"abcd"), Some([*b"ab", *b"cd"]));
        assert_eq!((array(b"abc"), array(b"abcdef")), (None, None));
    }

    #[test]
    fn a_list_takes_as_many_elements_as_came() {
        for (octets, expected) in [(&b""[..], 0), (b"ab", 1), (b"abcdef", 3)] {
            let (completion, cargo) = read(octets);
            let list = <Vec<[u8; 2]> as Outcome>::new(&completion, cargo).unwrap();
            assert_eq!((list.len(), list.concat()), (expected, octets.to_vec()));
        }
    }
}
