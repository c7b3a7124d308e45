// SPDX-License-Identifier: MIT OR Apache-2.0

//! The graph of modules that name each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::source::{Module, Named};

/// The number of re-exports that a name may go through.
const HOPS: usize = 16;

/// The modules of a crate by their paths.
pub(super) struct Graph {
    modules: Vec<Module>,
    by_path: HashMap<Vec<String>, usize>,
}

impl Graph {
    pub(super) fn new(mut modules: Vec<Module>) -> Self {
        let paths = modules.iter().enumerate();
        let by_path: HashMap<_, _> =
            paths.map(|(index, module)| (module.path.clone(), index)).collect();
        for Module { path, named, .. } in &mut modules {
            // No module is a value: a variable has its name.
            let child = |named: &Named| by_path.contains_key(&[&**path, &*named.path].concat());
            named.retain(|named| !named.is_value || !child(named));
        }
        Self { modules, by_path }
    }

    /// One line for each module that names one of a layer above its own, and for each module
    /// without a layer.
    pub(super) fn arrows_up(&self, layers: &[&[&str]]) -> Vec<String> {
        let mut problems = BTreeSet::new();
        let mut places = Vec::new();
        for module in &self.modules {
            let place = place_of(&module.path, layers);
            if place.is_none() {
                let name = module.path.join("::");
                problems.insert(format!("{}: {name} has no layer", module.file));
            }
            places.push(place.unwrap_or(layers.len()));
        }
        let mut first: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (from, module) in self.modules.iter().enumerate() {
            for Named { path, line, .. } in &module.named {
                let ends = self.follow(from, path, HOPS).unwrap_or_default();
                // The module that defines it, or else the last re-exporter that is above.
                let above = ends.into_iter().rev().find(|to| places[from] < places[*to]);
                if let Some(to) = above {
                    let least = first.entry((from, to)).or_insert(*line);
                    *least = (*least).min(*line);
                }
            }
        }
        for ((from, to), line) in first {
            problems.insert(self.told(from, line, "names", to));
        }
        for (from, line, method, to) in self.methods_above(&places) {
            problems.insert(self.told(from, line, &format!("calls `{method}` of"), to));
        }
        problems.into_iter().collect()
    }

    /// One line for each of these modules, and those within them, that names one of the crates, or
    /// modules of other crates. The module "" is all of them.
    pub(super) fn arrows_out(&self, modules: &[&str], crates: &[&str]) -> Vec<String> {
        let crates: Vec<(&str, Vec<&str>)> =
            crates.iter().map(|name| (*name, name.split("::").collect())).collect();
        let mut problems = BTreeSet::new();
        for module in &self.modules {
            let is_one = !module.path.is_empty() && place_of(&module.path, &[modules]).is_some();
            if !is_one && !modules.contains(&"") {
                continue;
            }
            for Named { path, line, .. } in &module.named {
                let begins =
                    |name: &[&str]| path.len() >= name.len() && *name == path[..name.len()];
                let found = crates.iter().find(|(_, name)| begins(name));
                if let Some((name, _)) = found {
                    let file = &module.file;
                    problems.insert(format!("{file}:{line} names {name}, which is not for it"));
                }
            }
        }
        problems.into_iter().collect()
    }

    /// One line for each module of one of these that names a module of another.
    pub(super) fn arrows_between(&self, wings: &[&str]) -> Vec<String> {
        let wings: Vec<&[&str]> = wings.iter().map(std::slice::from_ref).collect();
        let wing = |index: usize| {
            let path = &self.modules[index].path;
            if path.is_empty() { None } else { place_of(path, &wings) }
        };
        let mut problems = BTreeSet::new();
        for (from, module) in self.modules.iter().enumerate() {
            let Some(own) = wing(from) else { continue };
            for Named { path, line, .. } in &module.named {
                let ends = self.follow(from, path, HOPS).unwrap_or_default();
                let other = |to: &usize| wing(*to).is_some_and(|other| other != own);
                if let Some(to) = ends.into_iter().rev().find(other) {
                    let (from, to) = (&module.file, &self.modules[to].file);
                    problems.insert(format!("{from}:{line} names {to}, of another wing"));
                }
            }
        }
        problems.into_iter().collect()
    }

    /// One line for each module of `above` that names a module of `behind` by a path on which
    /// `front` does not come first.
    pub(super) fn arrows_past(&self, front: &str, above: &[&str], behind: &[&str]) -> Vec<String> {
        let is_in = |index: usize, names: &[&str]| {
            let path = &self.modules[index].path;
            !path.is_empty() && place_of(path, &[names]).is_some()
        };
        let mut problems = BTreeSet::new();
        for (from, module) in self.modules.iter().enumerate().filter(|(at, _)| is_in(*at, above)) {
            for Named { path, line, .. } in &module.named {
                let ends = self.follow(from, path, HOPS).unwrap_or_default();
                let first = ends.into_iter().find(|to| is_in(*to, behind) || is_in(*to, &[front]));
                if let Some(to) = first.filter(|to| is_in(*to, behind)) {
                    let (from, to) = (&module.file, &self.modules[to].file);
                    problems.insert(format!("{from}:{line} names {to}, which is behind {front}"));
                }
            }
        }
        problems.into_iter().collect()
    }

    /// One line for each circle that has modules of `layer` in it; "" is the whole crate.
    pub(super) fn circles_in(&self, layer: &str) -> Vec<String> {
        let below = format!("{layer}::");
        let is_in_layer =
            |name: &String| layer.is_empty() || name == layer || name.starts_with(&below);
        let circles = self.circles().into_iter().filter(|circle| circle.iter().any(is_in_layer));
        circles
            .map(|circle| format!("these name each other in a circle: {}", circle.join(" ")))
            .collect()
    }

    /// Circles of modules that name each other: for each circle the paths, in order. Re-exports do
    /// not count, and a module that has a folder of its own name beside it is one with the modules
    /// in there.
    fn circles(&self) -> Vec<Vec<String>> {
        let units: Vec<usize> = (0..self.modules.len()).map(|index| self.unit(index)).collect();
        let mut names: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (from, module) in self.modules.iter().enumerate() {
            for Named { path, .. } in module.named.iter().filter(|named| !named.passed_on) {
                let end = self.follow(from, path, HOPS).and_then(|ends| ends.last().copied());
                if let Some(to) = end.filter(|to| units[*to] != units[from]) {
                    names.entry(units[from]).or_default().insert(units[to]);
                }
            }
        }
        let reached = |from: usize| {
            let mut seen = BTreeSet::new();
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                let next = names.get(&at).into_iter().flatten();
                open.extend(next.copied().filter(|to| seen.insert(*to)));
            }
            seen
        };
        let all: BTreeMap<usize, BTreeSet<usize>> =
            names.keys().map(|from| (*from, reached(*from))).collect();
        let mut circles = BTreeSet::new();
        for (from, seen) in all.iter().filter(|(from, seen)| seen.contains(from)) {
            let back = |to: &&usize| all.get(to).is_some_and(|seen| seen.contains(from));
            let paths = seen.iter().filter(back).map(|to| self.modules[*to].path.join("::"));
            let mut circle: Vec<String> = paths.collect();
            circle.sort();
            circles.insert(circle);
        }
        circles.into_iter().collect()
    }

    /// The module whose folder it is in, unless that is a `mod.rs`.
    fn unit(&self, index: usize) -> usize {
        let module = &self.modules[index];
        let Some((_, parent)) = module.path.split_last() else { return index };
        match self.by_path.get(parent) {
            Some(above) if is_one_with_folder(&self.modules[*above].file, &module.file) => {
                self.unit(*above)
            }
            _ => index,
        }
    }

    fn told(&self, from: usize, line: usize, what: &str, to: usize) -> String {
        let (from, to) = (&self.modules[from], &self.modules[to]);
        format!("{}:{line} {what} {}, which is above it", from.file, to.file)
    }

    /// The modules that a path goes through when it is named in `from`: its re-exporters, and last
    /// the one that defines its end. `None` where it leads out of the crate.
    ///
    /// The root is passed by everything that begins with `crate`: it counts where the name is its
    /// own.
    fn follow(&self, from: usize, path: &[String], hops: usize) -> Option<Vec<usize>> {
        let hops = hops.checked_sub(1)?;
        let mut rest: Vec<&str> = path.iter().map(String::as_str).collect();
        let mut at = self.modules[from].path.clone();
        match *rest.first()? {
            "crate" => {
                at.clear();
                rest.remove(0);
            }
            "self" => {
                rest.remove(0);
            }
            _ => {}
        }
        while rest.first() == Some(&"super") {
            at.pop()?;
            rest.remove(0);
        }
        self.descend(at, &rest, hops)
    }

    /// Goes on from the module `at` by the names in `rest`.
    fn descend(&self, mut at: Vec<String>, mut rest: &[&str], hops: usize) -> Option<Vec<usize>> {
        let mut passed = Vec::new();
        let start = at.len();
        loop {
            let index = *self.by_path.get(&at)?;
            let module = &self.modules[index];
            if at.len() > start {
                passed.push(index);
            }
            let Some((name, after)) = rest.split_first() else {
                passed.push(index);
                return Some(passed);
            };
            let child = [at.as_slice(), &[(*name).to_owned()]].concat();
            if self.by_path.contains_key(&child) {
                at = child;
                rest = after;
                continue;
            }
            if module.items.contains(*name) {
                passed.push(index);
                return Some(passed);
            }
            if let Some(import) = module.imports.get(*name) {
                let whole: Vec<String> =
                    import.iter().cloned().chain(after.iter().map(|s| (*s).to_owned())).collect();
                // The name is this module's to give, even where it comes from another crate.
                passed.push(index);
                passed.extend(self.follow(index, &whole, hops).unwrap_or_default());
                return Some(passed);
            }
            for glob in &module.globs {
                let mut whole = glob.clone();
                whole.extend(rest.iter().map(|s| (*s).to_owned()));
                if let Some(ends) = self.follow(index, &whole, hops)
                    && self.defines(ends.last(), name)
                {
                    passed.extend(ends);
                    return Some(passed);
                }
            }
            // Tokens that a macro has made, perhaps.
            return if at.len() > start { Some(passed) } else { None };
        }
    }

    /// True if the module has that item, or is that item.
    fn defines(&self, module: Option<&usize>, name: &str) -> bool {
        let module = module.map(|index| &self.modules[*index]);
        module
            .is_some_and(|m| m.items.contains(name) || m.path.last().is_some_and(|own| own == name))
    }

    /// Calls of methods that only a module above defines, in an `impl` for a type from below.
    fn methods_above(&self, places: &[usize]) -> Vec<(usize, usize, String, usize)> {
        let mut above: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            for (own, methods) in &module.methods {
                let home =
                    self.follow(index, &own.path, HOPS).and_then(|ends| ends.last().copied());
                if home.is_some_and(|home| places[home] < places[index]) {
                    methods.iter().for_each(|name| above.entry(name).or_default().push(index));
                }
            }
        }
        let mut calls = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for (name, indices) in &above {
                let Some(line) = module.called.get(*name) else { continue };
                let own = |(index, other): (usize, &Module)| {
                    places[index] <= places[from] && other.functions.contains(*name)
                };
                if self.modules.iter().enumerate().any(own) {
                    continue;
                }
                let higher = indices.iter().filter(|index| places[**index] > places[from]);
                calls.extend(higher.map(|to| (from, *line, (*name).to_owned(), *to)));
            }
        }
        calls
    }
}

/// The layer of a module, from below; that of the root is above all.
fn place_of(path: &[String], layers: &[&[&str]]) -> Option<usize> {
    if path.is_empty() {
        return Some(layers.len());
    }
    (1..=path.len()).rev().find_map(|len| {
        let name = path[..len].join("::");
        layers.iter().position(|names| names.contains(&name.as_str()))
    })
}

/// True if the file of a module is in the folder that stands beside its parent's file, or is that
/// very file.
fn is_one_with_folder(parent: &str, child: &str) -> bool {
    let folder = parent.strip_suffix(".rs").unwrap_or(parent);
    child == parent || !parent.ends_with("lib.rs") && child.starts_with(&format!("{folder}/"))
}
