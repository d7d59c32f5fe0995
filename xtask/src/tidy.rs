//! `cargo xtask tidy`: the house rules, checked.
//!
//! Here: reading the tree, running the table of rules over it, printing. The same runs as a test. Not here:
//! the rules (`tidy/rules.rs`), and what rustfmt and clippy see anyway.

mod rules;
mod source;

use std::{cell::OnceCell, fmt, fs, path::Path, process::Command};

use crate::shell::{self, Outcome};
use source::Source;

/// A file of the tree, by its path from the root with `/`.
struct File {
    path: String,
    text: String,
    source: OnceCell<Source>,
}

/// Everything that is or would be committed, and what cargo would build.
struct Tree {
    files: Vec<File>,
    /// The names of all packages that any target, feature or test pulls in.
    packages: Vec<String>,
}

/// Where a rule is broken.
#[derive(Clone, Debug)]
struct Finding {
    path: String,
    /// From 1; 0 is the file as a whole.
    line: usize,
    what: String,
}

impl File {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), source: OnceCell::new() }
    }

    fn source(&self) -> &Source {
        self.source.get_or_init(|| Source::new(&self.text))
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is test code by its place.
    fn is_test(&self) -> bool {
        let places = ["/tests/", "/benches/", "/tests.rs", "/store/exercise.rs", "/store/exercise/"];
        places.iter().any(|place| self.path.contains(place))
    }

    fn is_in(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    /// A finding at a byte position.
    fn at(&self, position: usize, what: impl Into<String>) -> Finding {
        let line = source::line_of(self.text.as_bytes(), position) + 1;
        Finding { path: self.path.clone(), line, what: what.into() }
    }

    fn whole(&self, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line: 0, what: what.into() }
    }
}

impl Tree {
    /// Reads the tree around us.
    fn read() -> Outcome<Self> {
        let root = shell::root();
        let mut files = Vec::new();
        for path in paths(root)? {
            // Deleted but not yet committed, or not text (pictures): nothing to check.
            if let Ok(text) = fs::read_to_string(root.join(&path)) {
                files.push(File::new(path, text));
            }
        }
        let tree =
            ["tree", "--workspace", "--all-features", "--edges=all", "--prefix=none", "--format={p}", "--locked"];
        let lines = shell::read(shell::cargo().args(tree))?;
        let packages = lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
        Ok(Self { files, packages })
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// What git tracks or would track; without git (an unpacked archive) whatever is there.
fn paths(root: &Path) -> Outcome<Vec<String>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    if let Ok(names) = shell::read(Command::new("git").arg("-C").arg(root).args(list)) {
        return Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect());
    }
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).map_err(|error| format!("{folder}: {error}"))? {
            let entry = entry.map_err(|error| error.to_string())?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            match entry.path().is_dir() {
                true if path == "target" || path == ".git" => {}
                true => folders.push(format!("{path}/")),
                false => paths.push(path),
            }
        }
    }
    Ok(paths)
}

/// All findings, each with its rule.
fn findings(tree: &Tree) -> Vec<(&'static rules::Rule, Finding)> {
    rules::RULES.iter().flat_map(|rule| (rule.check)(tree).into_iter().map(move |finding| (rule, finding))).collect()
}

/// Prints what is found, by rule, with the reason.
pub(crate) fn command() -> Outcome<()> {
    let findings = findings(&Tree::read()?);
    let mut last = "";
    for (rule, finding) in &findings {
        if rule.name != last {
            println!("\n{}\n  why: {}", rule.name, rule.why);
            last = rule.name;
        }
        println!("  {finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} rules hold", rules::RULES.len());
            Ok(())
        }
        count => Err(format!("{count} findings")),
    }
}

#[test]
fn the_tree_is_tidy() {
    let tree = Tree::read().expect("the tree can be read");
    let lines: Vec<String> =
        findings(&tree).iter().map(|(rule, finding)| format!("{finding}\n    {}: {}", rule.name, rule.why)).collect();
    assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}
