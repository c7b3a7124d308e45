// SPDX-License-Identifier: MIT OR Apache-2.0

//! The text in which `iwarp run` describes the devices.
//!
//! Its first line has the names of the counters, each further one describes a device in words, of
//! which the numbers are hexadecimal. Words are those of Linux's files: none has a blank in it.

/// All devices.
#[derive(Clone, Copy, Debug)]
pub struct Devices<'a>(&'a [u8]);

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device<'a> {
    /// Its place in the list.
    pub index: u32,
    /// Such as `roce0`.
    pub name: &'a [u8],
    /// `roce` or `iw`.
    pub protocol: &'a [u8],
    /// `enum rdma_node_type`.
    pub node_type: u8,
    /// The library's version.
    pub firmware: &'a [u8],
    /// In the byte order of the host.
    pub node_guid: u64,
    /// Likewise.
    pub system_guid: u64,
    /// `IBV_DEVICE_*`.
    pub flags: u64,
    /// Its ports.
    pub ports: Ports<'a>,
}

/// The ports of a device, which have numbers from 1 on: an interface's index and name for each.
/// Without any words there is one port; index 0 stands for no interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports<'a>(&'a [u8]);

impl<'a> Ports<'a> {
    /// Their number.
    pub fn count(self) -> u32 {
        let (mut rest, mut count) = (self.0, 0_u32);
        while word(&mut rest).and_then(|_| word(&mut rest)).is_some() {
            count = count.wrapping_add(1);
        }
        count.max(1)
    }

    /// True if there is a port of this number.
    pub fn has(self, number: u32) -> bool {
        (1..=self.count()).contains(&number)
    }

    /// The interface below a port, and its index.
    pub fn interface(self, number: u32) -> Option<(u32, &'a [u8])> {
        let mut rest = self.0;
        for _ in 1..number {
            word(&mut rest)?;
            word(&mut rest)?;
        }
        let index = self::number(word(&mut rest)?)?.try_into().ok()?;
        let name = word(&mut rest)?;
        if index == 0 { None } else { Some((index, name)) }
    }
}

impl<'a> Devices<'a> {
    /// Of a text, of which a line without its end may be the last.
    pub const fn new(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The device with this index.
    pub fn device(&self, index: u32) -> Option<Device<'a>> {
        let (_, mut rest) = cut(self.0, b'\n')?;
        for _ in 0..index {
            rest = cut(rest, b'\n')?.1;
        }
        Device::parse(index, cut(rest, b'\n')?.0)
    }

    /// The name of a counter.
    pub fn counter(&self, place: usize) -> Option<&'a [u8]> {
        let (mut names, _) = cut(self.0, b'\n')?;
        for _ in 0..place {
            word(&mut names)?;
        }
        word(&mut names)
    }
}

impl<'a> Device<'a> {
    /// As [`Self::parse`] reads it.
    fn parse(index: u32, mut line: &'a [u8]) -> Option<Self> {
        let line = &mut line;
        Some(Self {
            index,
            name: word(line)?,
            protocol: word(line)?,
            node_type: number(word(line)?)?.try_into().ok()?,
            firmware: word(line)?,
            node_guid: number(word(line)?)?,
            system_guid: number(word(line)?)?,
            flags: number(word(line)?)?,
            ports: Ports(line),
        })
    }
}

/// Takes the next word, if there is one more.
fn word<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (word, rest) = match cut(line, b' ') {
        Some(parts) => parts,
        None => (*line, <&[u8]>::default()),
    };
    *line = rest;
    Some(word).filter(|word| !word.is_empty())
}

/// The octets in front of the first of a kind, and those behind it.
fn cut(octets: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = octets.iter().position(|octet| *octet == at)?;
    Some((octets.get(..place)?, octets.get(place.wrapping_add(1)..)?))
}

fn number(digits: &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for digit in digits {
        let digit = char::from(*digit).to_digit(16)?;
        value = value.checked_mul(16)?.wrapping_add(u64::from(digit));
    }
    Some(value)
}
