// SPDX-License-Identifier: MIT OR Apache-2.0

//! `interop/siw-matrix`: the programs, the settings, and their combinations.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

/// Relative to the root; its head describes it.
pub(crate) const FILE: &str = "interop/siw-matrix";

/// Everything that the file says.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    pub(crate) programs: Vec<Program>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) cells: Vec<Cell>,
    /// `PROGRAM/SETTING`
    short: Vec<String>,
    /// Parts of cells' names, and why siw may fail these.
    known: Vec<(String, String)>,
    /// Programs that are not run, and why.
    pub(crate) absent: Vec<(String, String)>,
}

/// A server and a client, each as it is called here and on siw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// Seconds for each end.
    pub(crate) limit: u64,
    families: String,
    ways: String,
    /// Set if the server does not end by itself.
    pub(crate) stays: bool,
    pub(crate) server: Commands,
    pub(crate) client: Commands,
    /// A text that the client prints where all is well.
    pub(crate) says: String,
}

/// A command as it is called here and on siw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands {
    pub(crate) here: String,
    pub(crate) there: String,
}

/// The settings of all programs of a cell's column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    pub(crate) name: String,
    /// As it stands in the file.
    pub(crate) text: String,
    /// siw's parameters.
    pub(crate) siw: BTreeMap<String, String>,
    /// Our environment.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) boot: Boot,
    pub(crate) end: Option<End>,
}

/// The settings with which a guest is booted; cells that agree on them share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boot {
    pub(crate) mtu: Option<String>,
    pub(crate) no_offload: bool,
    /// Words for `rxe_link`.
    pub(crate) link: Option<String>,
}

/// The way in which the traffic is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    KillOurs,
    KillTheirs,
    Cut,
}

/// The end that is the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    WeServe,
    WeConnect,
}

/// One run: indices into the lists of programs and settings, the family 4 or 6, and the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) program: usize,
    pub(crate) setting: usize,
    pub(crate) family: char,
    pub(crate) way: Way,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WeServe => "we-serve",
            Self::WeConnect => "we-connect",
        })
    }
}

impl Matrix {
    pub(crate) fn read() -> Result<Self> {
        let path = shell::root().join(FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut matrix = Self::default();
        for (number, line) in text.lines().enumerate() {
            let result = matrix.line(line);
            result.with_context(|| format!("{FILE}, line {}: {line}", number + 1))?;
        }
        for name in &matrix.short {
            let known = matrix.cells.iter().any(|cell| matrix.stem(*cell) == *name);
            ensure!(known, "{FILE}: there is no cell {name}");
        }
        Ok(matrix)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
        let (_, rest) = line.trim().split_once(' ').unwrap_or((first, ""));
        let rest = rest.trim();
        match first {
            "program" => self.programs.push(Program::parse(words)?),
            "setting" => self.settings.push(Setting::parse(rest)?),
            "run" => self.run(rest)?,
            "short" => self.short.extend(words.map(str::to_owned)),
            "known" | "absent" => {
                let (name, cause) = rest.split_once(' ').context("no cause")?;
                let list = if first == "known" { &mut self.known } else { &mut self.absent };
                list.push((name.to_owned(), cause.trim().to_owned()));
            }
            _ => self.programs.last_mut().context("no program yet")?.add(first, rest)?,
        }
        Ok(())
    }

    fn run(&mut self, text: &str) -> Result<()> {
        let mut parts = text.split(" : ");
        let (programs, settings) =
            (parts.next().context("no programs")?, parts.next().context("no settings")?);
        let mut options = BTreeMap::new();
        for word in parts.flat_map(str::split_whitespace) {
            options.extend(word.split_once('='));
        }
        for name in settings.split_whitespace() {
            let setting = self.settings.iter().position(|setting| setting.name == name);
            let setting = setting.with_context(|| format!("no setting {name}"))?;
            for name in programs.split_whitespace() {
                let program = self.programs.iter().position(|program| program.name == name);
                let program = program.with_context(|| format!("no program {name}"))?;
                let allows = |option: &str, own: &str, letter: char| {
                    own.contains(letter)
                        && options.get(option).is_none_or(|chosen| chosen.contains(letter))
                };
                for family in ['4', '6'] {
                    for (letter, way) in [('s', Way::WeServe), ('c', Way::WeConnect)] {
                        let is = &self.programs[program];
                        if allows("families", &is.families, family)
                            && allows("ways", &is.ways, letter)
                        {
                            self.cells.push(Cell { program, setting, family, way });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn program(&self, cell: Cell) -> &Program {
        &self.programs[cell.program]
    }

    pub(crate) fn setting(&self, cell: Cell) -> &Setting {
        &self.settings[cell.setting]
    }

    fn stem(&self, cell: Cell) -> String {
        format!("{}/{}", self.program(cell).name, self.setting(cell).name)
    }

    /// For `--only`, and for the names of files.
    pub(crate) fn name(&self, cell: Cell) -> String {
        format!("{}/IPv{}/{}", self.stem(cell), cell.family, cell.way)
    }

    pub(crate) fn is_short(&self, cell: Cell) -> bool {
        // One family shows enough where there is little time.
        cell.family == '4' && self.short.contains(&self.stem(cell))
    }

    /// The reason why siw may fail it.
    pub(crate) fn known(&self, cell: Cell) -> Option<&str> {
        let name = self.name(cell);
        let known = self.known.iter().find(|(part, _)| name.contains(part.as_str()));
        known.map(|(_, cause)| cause.as_str())
    }
}

impl Program {
    fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self> {
        let name = words.next().context("no name")?.to_owned();
        let mut program = Self {
            name,
            limit: 30,
            families: "46".to_owned(),
            ways: "sc".to_owned(),
            ..Self::default()
        };
        for word in words {
            match word.split_once('=') {
                Some(("limit", value)) => program.limit = value.parse()?,
                Some(("families", value)) => value.clone_into(&mut program.families),
                Some(("ways", value)) => value.clone_into(&mut program.ways),
                None if word == "stays" => program.stays = true,
                _ => bail!("what is {word}?"),
            }
        }
        Ok(program)
    }

    fn add(&mut self, key: &str, value: &str) -> Result<()> {
        let value = value.to_owned();
        match key {
            "server" => self.server = Commands { here: value.clone(), there: value },
            "client" => self.client = Commands { here: value.clone(), there: value },
            "server-here" => self.server.here = value,
            "server-there" => self.server.there = value,
            "client-here" => self.client.here = value,
            "client-there" => self.client.there = value,
            "says" => self.says = value,
            _ => bail!("what is {key}?"),
        }
        Ok(())
    }
}

impl Setting {
    fn parse(text: &str) -> Result<Self> {
        let (name, text) = text.split_once(' ').context("it sets nothing")?;
        let mut setting =
            Self { name: name.to_owned(), text: text.trim().to_owned(), ..Self::default() };
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').with_context(|| format!("what is {word}?"))?;
            let value = value.to_owned();
            match key {
                "mtu" => setting.boot.mtu = Some(value),
                "offload" => setting.boot.no_offload = value == "off",
                "link" => {
                    setting.boot.link = Some(value.replace(',', " "));
                    // The wire takes frames as they are: they must fit it.
                    setting.boot.no_offload = true;
                }
                "end" => {
                    setting.end = Some(match &*value {
                        "kill-ours" => End::KillOurs,
                        "kill-theirs" => End::KillTheirs,
                        "cut" => End::Cut,
                        _ => bail!("what is {word}?"),
                    });
                }
                _ if key.starts_with("IWARP_") => {
                    setting.environment.insert(key.to_owned(), value);
                }
                _ => {
                    let key =
                        key.strip_prefix("siw.").with_context(|| format!("what is {word}?"))?;
                    setting.siw.insert(key.to_owned(), value);
                }
            }
        }
        Ok(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_line_multiplies_programs_settings_families_and_ways() {
        let text = "program a\n  server a -s\n  client a -c\n  client-here b -c\n\
                    program b limit=7 families=4 stays\n\
                    setting x siw.mpa_version=1 IWARP_CRC=off\nsetting y link=lose=1,delay=2\n\
                    run a b : x y : ways=c\nshort a/y\nknown b/x it says no\n";
        let matrix = Matrix::parse(text).expect("good");
        let names: Vec<String> = matrix.cells.iter().map(|cell| matrix.name(*cell)).collect();
        let all = [
            "a/x/IPv4/we-connect",
            "a/x/IPv6/we-connect",
            "b/x/IPv4/we-connect",
            "a/y/IPv4/we-connect",
            "a/y/IPv6/we-connect",
            "b/y/IPv4/we-connect",
        ];
        assert_eq!(names, all);
        let short: Vec<bool> = matrix.cells.iter().map(|cell| matrix.is_short(*cell)).collect();
        assert_eq!(short, [false, false, false, true, false, false]);
        assert_eq!(matrix.known(matrix.cells[2]), Some("it says no"));
        assert_eq!(matrix.programs[0].client.there, "a -c");
        assert_eq!(matrix.programs[0].client.here, "b -c");
        assert!(matrix.programs[1].stays);
        assert_eq!(matrix.settings[1].boot.link.as_deref(), Some("lose=1 delay=2"));
    }

    #[test]
    fn unknown_words_are_refused_with_their_line() {
        for (text, line) in [
            ("program a\n  serve r\n", "line 2"),
            ("program a speed=1\n", "line 1"),
            ("setting x crc=1\n", "line 1"),
            ("run a : x\n", "line 1"),
        ] {
            let error = Matrix::parse(text).expect_err(text).to_string();
            assert!(error.contains(line), "{error}");
        }
        assert!(Matrix::parse("short a/b\n").is_err());
    }

    #[test]
    fn the_projects_own_file_is_good() {
        let matrix = Matrix::read().expect("good");
        assert!(matrix.cells.iter().any(|cell| matrix.is_short(*cell)));
        for program in &matrix.programs {
            for command in [&program.server, &program.client] {
                assert!(!command.here.is_empty() && !command.there.is_empty(), "{}", program.name);
            }
        }
    }
}
