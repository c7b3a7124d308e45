// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions by their keys: those that live, and those that were deregistered lately.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use iwarp::Sge;
use iwarp::observe::Value;

use super::layout::{RegionHead, read};
use super::place::Place;

/// Deregistered regions that are remembered.
const REMEMBERED: usize = 4096;
/// `IBV_ACCESS_LOCAL_WRITE`
const LOCAL_WRITE: i64 = 1;

#[derive(Debug)]
pub(super) struct Region {
    object: usize,
    pd: usize,
    /// Its memory; `None` where that is not the program's.
    memory: Option<Memory>,
    writable: bool,
    pub(super) made: Place,
    pub(super) ended: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    /// Its address in requests.
    first: u64,
    length: u64,
    /// Its address in the process.
    address: usize,
}

impl Memory {
    /// The bytes before it and behind it that are asked for; `None` if there are none.
    fn outside(&self, at: u64, length: u64) -> Option<String> {
        let (end, own) = (u128::from(at) + u128::from(length), u128::from(self.first));
        let own_end = own + u128::from(self.length);
        let (before, behind) = (own.saturating_sub(at.into()), end.saturating_sub(own_end));
        let before = before.min(length.into());
        let behind = behind.min(length.into());
        match (before, behind) {
            (0, 0) => None,
            (before, 0) => Some(format!("{before} of them before its beginning")),
            (0, behind) => Some(format!("{behind} of them behind its end")),
            (before, behind) => {
                Some(format!("{before} of them before its beginning, {behind} behind its end"))
            }
        }
    }
}

/// The reason that a key does not give what is asked for.
#[derive(Debug)]
pub(super) struct Wrong<'a> {
    pub(super) why: String,
    /// A region, with what it is to the request.
    pub(super) region: Option<(&'static str, &'a Region)>,
}

#[derive(Debug, Default)]
pub(super) struct Regions {
    of: HashMap<u32, Region>,
    /// Keys of regions that are gone, the oldest first.
    gone: VecDeque<u32>,
    /// Parent domains, and those that they stand for.
    parents: HashMap<usize, usize>,
    /// The program has objects of another process, of which too little is known.
    imported: bool,
}

fn number(arguments: &[(&str, Value)], wanted: &str) -> Option<i64> {
    arguments.iter().find_map(|(name, value)| match value {
        Value::Number(number) if *name == wanted => Some(*number),
        _ => None,
    })
}

impl Regions {
    /// A call has made the object at this address.
    pub(super) fn made(&mut self, verb: &str, arguments: &[(&str, Value)], object: usize) {
        match verb {
            "ibv_alloc_pd" => {
                self.parents.remove(&object);
            }
            "ibv_alloc_parent_domain" => {
                if let Some((_, Value::Pointer(init))) = arguments.get(1) {
                    // SAFETY: the program's attributes, which begin with the domain.
                    let domain = unsafe { read::<usize>(*init) };
                    self.parents.insert(object, self.domain(domain));
                }
            }
            verb if verb.starts_with("ibv_import_") => self.imported = true,
            verb if verb.starts_with("ibv_reg_") => self.registered(verb, arguments, object),
            _ => {}
        }
    }

    fn registered(&mut self, verb: &str, arguments: &[(&str, Value)], object: usize) {
        // SAFETY: the region that was just made.
        let head = unsafe { read::<RegionHead>(object) };
        let is_plain = matches!(verb, "ibv_reg_mr" | "ibv_reg_mr_iova" | "ibv_reg_mr_iova2");
        let first = number(arguments, "iova").map_or(head.addr as u64, |iova| iova as u64);
        let (length, address) = (head.length as u64, head.addr);
        let memory = is_plain.then_some(Memory { first, length, address });
        let access = number(arguments, "access").unwrap_or(LOCAL_WRITE);
        let region = Region {
            object,
            pd: self.domain(head.pd),
            memory,
            writable: access & LOCAL_WRITE != 0,
            made: Place::here(),
            ended: None,
        };
        self.of.insert(head.key, region);
    }

    fn domain(&self, pd: usize) -> usize {
        self.parents.get(&pd).copied().unwrap_or(pd)
    }

    /// The region at this address is being deregistered. Returns its key.
    pub(super) fn ends(&mut self, object: usize) -> Option<u32> {
        let mut lives = self.of.iter_mut().filter(|(_, region)| region.ended.is_none());
        let (key, region) = lives.find(|(_, region)| region.object == object)?;
        region.ended = Some(Place::here());
        let key = *key;
        self.gone.push_back(key);
        if self.gone.len() > REMEMBERED
            && let Some(oldest) = self.gone.pop_front()
            && self.of.get(&oldest).is_some_and(|region| region.ended.is_some())
        {
            self.of.remove(&oldest);
        }
        Some(key)
    }

    /// It was not deregistered after all.
    pub(super) fn stays(&mut self, object: usize) {
        let mut gone = self.gone.iter().rev();
        let of = &mut self.of;
        let same = |key: &&u32| of.get(*key).is_some_and(|region| region.object == object);
        if let Some(region) = gone.find(same).and_then(|key| of.get_mut(key)) {
            region.ended = None;
        }
    }

    /// It has changed in ways that are not followed, but that it lives.
    pub(super) fn changed(&mut self, object: usize) {
        // SAFETY: the program's region, which it has just changed.
        let head = unsafe { read::<RegionHead>(object) };
        let pd = self.domain(head.pd);
        self.of.retain(|_, region| region.object != object || region.ended.is_some());
        let region =
            Region { object, pd, memory: None, writable: true, made: Place::here(), ended: None };
        self.of.insert(head.key, region);
    }

    /// The memory of an element in the process, where that is known.
    pub(super) fn memory(&self, element: &Sge) -> Option<Range<usize>> {
        let region = self.of.get(&element.lkey.0)?;
        let memory = region.memory?;
        let offset = usize::try_from(element.addr.checked_sub(memory.first)?).ok()?;
        let start = memory.address.checked_add(offset)?;
        Some(start..start.checked_add(element.length as usize)?)
    }

    pub(super) fn with_key(&self, key: u32) -> Option<&Region> {
        self.of.get(&key)
    }

    /// The reason why a request of a queue pair of this domain may not use an element.
    pub(super) fn wrong(&self, element: &Sge, pd: Option<usize>, sink: bool) -> Option<Wrong<'_>> {
        let Sge { addr, length, lkey } = *element;
        if length == 0 || self.imported {
            return None;
        }
        let key = lkey.0;
        let range = format!("the element of {length} bytes at {addr:#x} with lkey {key:#x}");
        let Some(region) = self.of.get(&key) else {
            let owner = self.owner(addr, length.into());
            let also = owner.map_or(String::new(), |(key, _)| {
                format!("; the memory is of the region with lkey {key:#x}")
            });
            let region = owner.map(|(_, region)| ("region that has the memory", region));
            return Some(Wrong { why: format!("{range}, which is no key{also}"), region });
        };
        let wrong = |why, title| Some(Wrong { why, region: Some((title, region)) });
        if region.ended.is_some() {
            return wrong(format!("{range}, whose region was deregistered"), "registered");
        }
        if pd.is_some_and(|pd| self.domain(pd) != region.pd) {
            let why = format!("{range}, whose region is of another protection domain");
            return wrong(why, "registered");
        }
        let memory = region.memory?;
        if let Some(outside) = memory.outside(addr, length.into()) {
            let Memory { first, length, .. } = memory;
            let why = format!("{range}: {outside}; the region has {length} bytes at {first:#x}");
            return wrong(why, "registered");
        }
        if sink && !region.writable {
            let why = format!("{range}, whose region lacks IBV_ACCESS_LOCAL_WRITE");
            return wrong(why, "registered");
        }
        None
    }

    /// The reason why a peer refuses a key, where it is of this process.
    pub(super) fn refused(&self, key: u32, at: u64, length: u64) -> Option<Wrong<'_>> {
        let region = self.of.get(&key)?;
        let wrong = |why| Some(Wrong { why, region: Some(("registered", region)) });
        if region.ended.is_some() {
            return wrong("whose region was deregistered".to_owned());
        }
        let Memory { first, length: own, .. } = region.memory?;
        let outside = region.memory?.outside(at, length)?;
        wrong(format!("{outside}; the region has {own} bytes at {first:#x}"))
    }

    /// A region that has the memory.
    fn owner(&self, at: u64, length: u64) -> Option<(u32, &Region)> {
        let has = |region: &&Region| {
            region.ended.is_none()
                && region.memory.is_some_and(|memory| memory.outside(at, length).is_none())
        };
        self.of.iter().find(|(_, region)| has(region)).map(|(key, region)| (*key, region))
    }
}
