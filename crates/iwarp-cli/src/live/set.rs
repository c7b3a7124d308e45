// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp set`: settings of a running process.

use std::str::FromStr;

use anyhow::Result;
use thiserror::Error;

use super::capture::absolute;
use super::tell::{find, tell};

/// Change settings of a running process.
///
/// They hold until the process ends, or until they are set again.
///
/// With link=down its devices are as if their cables were pulled: their ports are down, which the
/// program hears by asynchronous events, nothing passes on its connections, and no new ones are
/// made. See docs/faults.md.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The process; iwarp ps lists those that can be asked
    #[arg(value_name = "PID")]
    pid: u32,
    /// log=off|error|warn|info|debug: the messages on its standard error. capture=FILE begins a
    /// capture as iwarp capture does, and capture=off ends it. faults=RULES has the process hurt on
    /// purpose by rules as IWARP_FAULTS has them, in place of those before, and faults=off no more;
    /// faults of the network and place= need IWARP_FAULTS at its start. link=down|up: its ports
    #[arg(value_name = "NAME=VALUE", required = true)]
    settings: Vec<Setting>,
}

const EXAMPLES: &str = "\
Examples:
  iwarp set 4711 log=debug                      the program says more from now on
  iwarp set 4711 log=warn capture=off           as at the start
  iwarp set 4711 'faults=status=REM_OP_ERR,op=send,times=1'
                                                the next Send of each queue pair fails
  iwarp set 4711 'faults=seed=7;errno=ENOMEM,verb=ibv_reg_mr,one-in=10'
                                                one registration in ten is refused
  iwarp set 4711 faults=off                     all goes well again
  iwarp set 4711 link=down                      as if its cables were pulled, until link=up";

#[derive(Clone, PartialEq, Eq, Debug)]
enum Setting {
    Log(String),
    /// To a file, or not at all.
    Capture(Option<String>),
    /// Rules, or none.
    Faults(String),
    Link(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "expected log=off|error|warn|info|debug, capture=FILE|off, faults=RULES|off or link=down|up"
)]
struct SettingError;

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        Ok(match text.split_once('=').ok_or(SettingError)? {
            ("log", level @ ("off" | "error" | "warn" | "info" | "debug" | "trace")) => {
                Self::Log(level.to_owned())
            }
            ("capture", "off") => Self::Capture(None),
            ("capture", file) if !file.is_empty() => Self::Capture(Some(file.to_owned())),
            ("link", state @ ("down" | "up")) => Self::Link(state.to_owned()),
            ("faults", "off") => Self::Faults(String::new()),
            ("faults", rules) if !rules.is_empty() => Self::Faults(rules.to_owned()),
            _ => return Err(SettingError),
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let process = find(args.pid)?;
    for setting in &args.settings {
        let wish = match setting {
            Setting::Log(level) => format!("log {level}"),
            Setting::Capture(Some(file)) => format!("capture {}", absolute(file)?),
            Setting::Capture(None) => "capture".to_owned(),
            Setting::Faults(rules) => format!("faults {rules}"),
            Setting::Link(state) => format!("link {state}"),
        };
        tell(process, &wish)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_a_name_and_a_value() {
        let read = str::parse::<Setting>;
        assert_eq!(read("log=debug"), Ok(Setting::Log("debug".to_owned())));
        assert_eq!(read("capture=off"), Ok(Setting::Capture(None)));
        assert_eq!(
            read("capture=a=b,snap=64"),
            Ok(Setting::Capture(Some("a=b,snap=64".to_owned())))
        );
        assert_eq!(read("faults=off"), Ok(Setting::Faults(String::new())));
        assert_eq!(read("faults=slow=3,nth=2"), Ok(Setting::Faults("slow=3,nth=2".to_owned())));
        assert_eq!(read("link=down"), Ok(Setting::Link("down".to_owned())));
        for wrong in ["", "log", "log=", "log=loud", "capture=", "faults=", "link=off"] {
            assert_eq!(read(wrong), Err(SettingError), "{wrong:?}");
        }
    }
}
