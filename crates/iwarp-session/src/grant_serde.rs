// SPDX-License-Identifier: MIT OR Apache-2.0

//! Grants in the formats of serde (feature `serde`).
//!
//! Their form is that of [`Grant::to_octets`]: as bytes in binary formats, as 40 hexadecimal digits
//! in those for people.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::{GRANT_LEN, Grant, RemoteGrant};

/// The peer reads it as a [`RemoteGrant`]. A grant of one's own cannot be had from what somebody
/// says.
///
/// ```
/// use iwarp::Access;
/// use iwarp_session::{Exposed, RemoteGrant};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = iwarp::Device::open()?.alloc_pd();
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Offer<G> {
///     name: String,
///     memory: G,
/// }
///
/// let table = Exposed::new(&pd, 4096, Access::REMOTE_READ)?;
/// let text = serde_json::to_string(&Offer { name: "table".into(), memory: table.grant() })?;
/// let offer: Offer<RemoteGrant> = serde_json::from_str(&text)?;
/// assert_eq!(offer.memory.len(), 4096);
/// # Ok(())
/// # }
/// ```
impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.to_octets(), serializer)
    }
}

/// In the form of [`Grant`]: for a third party to which the peer grants it too.
impl Serialize for RemoteGrant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.to_octets(), serializer)
    }
}

/// Anything but a grant is an error: another length, other digits, and memory beyond 2^64 bytes.
/// Use of the grant shows if the peer's memory exists.
impl<'de> Deserialize<'de> for RemoteGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_str(Octets),
            false => deserializer.deserialize_bytes(Octets),
        }
    }
}

fn serialize<S: Serializer>(octets: &[u8; GRANT_LEN], serializer: S) -> Result<S::Ok, S::Error> {
    match serializer.is_human_readable() {
        true => serializer.collect_str(&Digits(octets)),
        false => serializer.serialize_bytes(octets),
    }
}

struct Digits<'a>(&'a [u8; GRANT_LEN]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Takes a grant in any of its forms.
struct Octets;

impl<'de> Visitor<'de> for Octets {
    type Value = RemoteGrant;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a grant of {GRANT_LEN} bytes, or {} hexadecimal digits", 2 * GRANT_LEN)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RemoteGrant, E> {
        let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(wrong()) };
        let octets = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?));
        let octets = octets.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        self.visit_bytes(&octets)
    }

    fn visit_bytes<E: de::Error>(self, octets: &[u8]) -> Result<RemoteGrant, E> {
        let wrong = || E::invalid_length(octets.len(), &self);
        let grant = RemoteGrant::from_octets(octets.try_into().map_err(|_| wrong())?);
        match grant.at(0, grant.len()) {
            Some(_) => Ok(grant),
            None => Err(E::custom("a grant of memory beyond 2^64 bytes")),
        }
    }

    /// From formats without bytes.
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<RemoteGrant, A::Error> {
        let mut octets = [0; GRANT_LEN];
        for (at, octet) in octets.iter_mut().enumerate() {
            let next = sequence.next_element()?;
            *octet = next.ok_or_else(|| de::Error::invalid_length(at, &self))?;
        }
        match sequence.next_element::<de::IgnoredAny>()? {
            None => self.visit_bytes(&octets),
            Some(_) => Err(de::Error::invalid_length(GRANT_LEN + 1, &self)),
        }
    }
}
