// SPDX-License-Identifier: MIT OR Apache-2.0

//! Manual pages and shell completions, made of the command line's own description.

mod page;
mod reference;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use iwarp_kit::lines;

use crate::Cli;

/// Print completions for a shell.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "\
Examples:
  iwarp completions bash > ~/.local/share/bash-completion/completions/iwarp
  iwarp completions zsh > ~/.zfunc/_iwarp
  iwarp completions fish > ~/.config/fish/completions/iwarp.fish")]
pub(crate) struct CompletionArgs {
    shell: Shell,
}

#[derive(clap::Args, Debug)]
pub(crate) struct PageArgs {
    /// Folder to write them to
    directory: PathBuf,
}

pub(crate) fn complete(args: &CompletionArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(Cli::command()), "iwarp", &mut script);
    lines::out(format_args!("{}", String::from_utf8(script)?));
    Ok(())
}

/// Writes `iwarp.1`, and a page for each command: `iwarp-demo.1` and so on.
pub(crate) fn write_pages(args: &PageArgs) -> Result<()> {
    let mut all = visible(Cli::command()).disable_help_subcommand(true);
    // So that the pages say `iwarp demo` where users type that.
    all.build();
    let mut pages = vec![("iwarp".to_owned(), all.clone())];
    pages.extend(all.get_subcommands().map(|command| {
        let name = format!("iwarp-{}", command.get_name());
        (name, command.clone())
    }));
    let names: Vec<String> = pages.iter().map(|(name, _)| name.clone()).collect();
    for (name, command) in pages {
        let path = args.directory.join(format!("{name}.1"));
        page::render(command, &name, &names)
            .and_then(|page| fs::write(&path, page))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The command line without what users do not call. The generators would show hidden commands.
fn visible(all: Command) -> Command {
    let shown: Vec<Command> =
        all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let mut command = Command::new("iwarp").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    if let Some(about) = all.get_about() {
        command = command.about(about.clone());
    }
    if let Some(about) = all.get_long_about() {
        command = command.long_about(about.clone());
    }
    match all.get_after_long_help() {
        Some(help) => command.after_long_help(help.clone()),
        None => command,
    }
}
