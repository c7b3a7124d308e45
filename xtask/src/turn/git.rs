// SPDX-License-Identifier: MIT OR Apache-2.0

//! The questions that are put to git.

use std::path::PathBuf;
use std::process::Stdio;

use crate::shell;

/// A checkout, or a folder that may be none.
pub(super) struct Git(pub(super) PathBuf);

impl Git {
    /// The commit that is checked out.
    pub(super) fn head(&self) -> Option<String> {
        self.ask(&["rev-parse", "HEAD"]).map(|text| text.trim().to_owned())
    }

    /// Says how the files that `inputs` mean differ from `commit`, if they do: by the first of
    /// them, or by the reason why that is not known.
    pub(super) fn change(&self, commit: &str, inputs: &[&str]) -> Option<String> {
        if self.ask(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_none() {
            return Some(format!("{} is not in this history", &commit[..commit.len().min(12)]));
        }
        let changed = ["diff", "--name-only", "--no-renames", commit, "--"];
        let unknown = ["ls-files", "--others", "--exclude-standard", "--"];
        let lists = [&changed[..], &unknown].map(|question| self.ask(&[question, inputs].concat()));
        let [Some(changed), Some(unknown)] = lists else {
            return Some("git does not say what changed".to_owned());
        };
        match changed.lines().chain(unknown.lines()).collect::<Vec<_>>()[..] {
            [] => None,
            [file] => Some(format!("{file} changed")),
            [file, .., _] => Some(format!("{file} and others changed")),
        }
    }

    /// The answer, or none where git has none.
    fn ask(&self, question: &[&str]) -> Option<String> {
        let mut git = shell::program("git");
        git.current_dir(&self.0)
            .args(["-c", "safe.directory=*"])
            .args(question)
            .stderr(Stdio::null());
        let output = git.output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn commit(git: &Git) -> String {
        git.ask(&["add", "."]).unwrap();
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        git.ask(&[&who[..], &["commit", "--quiet", "--message", "a"]].concat()).unwrap();
        git.head().unwrap()
    }

    #[test]
    fn a_change_is_one_of_the_inputs_in_any_state() {
        let name = format!("iwarp-turn-{}", std::process::id());
        let git = Git(std::env::temp_dir().join(name));
        fs::create_dir_all(git.0.join("src")).unwrap();
        git.ask(&["init", "--quiet"]).unwrap();
        fs::write(git.0.join("src/a"), "1").unwrap();
        let first = commit(&git);
        assert_eq!(git.change(&first, &["src"]), None);

        fs::write(git.0.join("other"), "1").unwrap();
        assert_eq!(git.change(&first, &["src"]), None);
        assert_eq!(git.change(&first, &["src", "other"]).as_deref(), Some("other changed"));
        fs::write(git.0.join("src/a"), "2").unwrap();
        assert_eq!(git.change(&first, &["src"]).as_deref(), Some("src/a changed"));
        let second = commit(&git);
        assert_eq!(git.change(&first, &["src"]).as_deref(), Some("src/a changed"));
        assert_eq!(git.change(&second, &["src"]), None);

        let foreign = git.change(&"1".repeat(40), &["src"]).unwrap();
        assert_eq!(foreign, "111111111111 is not in this history");
        fs::remove_dir_all(&git.0).unwrap();
    }
}
