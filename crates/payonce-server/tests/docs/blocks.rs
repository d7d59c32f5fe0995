//! Pages, cut into headings, links, fenced blocks, and the directives between them that readers do not see.

use std::{fs, path::PathBuf};

/// What a fenced block is, and so what becomes of it. An info string that is not here fails the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `sh run`: run to its end, which must be a success.
    Run,
    /// `js serve`, `sh serve` …: started, and left running.
    Serve,
    /// `toml config [FILE]`: passes the reader of configurations; with a name, that file is written.
    Config,
    /// `json answer`: what the last command printed, but for times and ids.
    Answer,
    /// `text output`: what the last command printed; `…` stands for anything.
    Output,
    /// `sql run`: runs in the page's database.
    Sql,
    /// `sql postgres`, `sql mysql`: its statements run on that server as its administrator, one by one.
    Admin,
    /// `rust from FILE`, `nginx from FILE`: stands in that file, which is run by its own test.
    Excerpt,
    /// `json`: is JSON.
    Json,
    /// `text`, or `LANGUAGE text`: for the eye alone.
    Text,
}

const INFOS: &[(&str, &str, Kind)] = &[
    ("sh", "run", Kind::Run),
    ("sh", "serve", Kind::Serve),
    ("js", "serve", Kind::Serve),
    ("python", "serve", Kind::Serve),
    ("java", "serve", Kind::Serve),
    ("toml", "config", Kind::Config),
    ("json", "answer", Kind::Answer),
    ("text", "output", Kind::Output),
    ("sql", "run", Kind::Sql),
    ("sql", "postgres", Kind::Admin),
    ("sql", "mysql", Kind::Admin),
    ("rust", "from", Kind::Excerpt),
    ("nginx", "from", Kind::Excerpt),
    ("json", "", Kind::Json),
    ("text", "", Kind::Text),
    ("sh", "text", Kind::Text),
    ("go", "text", Kind::Text),
    ("php", "text", Kind::Text),
    ("toml", "text", Kind::Text),
    ("nginx", "text", Kind::Text),
    ("ini", "text", Kind::Text),
    ("yaml", "text", Kind::Text),
];

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) kind: Kind,
    /// What stands behind language and kind in the info string.
    pub(crate) argument: String,
    pub(crate) body: String,
    pub(crate) line: usize,
}

/// What happens on a page, in its order.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Block(Block),
    /// `<!-- test: WORDS -->`
    Act {
        words: Vec<String>,
        line: usize,
    },
}

/// A page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) headings: Vec<String>,
    /// Prose alone, line by line: what is no block.
    pub(crate) prose: Vec<(usize, String)>,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Markdown files of a folder, by name.
pub(crate) fn names(folder: &str) -> Vec<String> {
    let files = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.sort();
    names
}

pub(crate) fn english() -> Vec<Page> {
    pages("README.md", "docs/en")
}

pub(crate) fn chinese() -> Vec<Page> {
    pages("README.zh-CN.md", "docs/zh")
}

fn pages(readme: &str, folder: &str) -> Vec<Page> {
    let docs = names(folder).into_iter().map(|name| Page::read(&format!("{folder}/{name}")));
    std::iter::once(Page::read(readme)).chain(docs).collect()
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        Self::cut(path, source(path))
    }

    /// Without its blocks: a page that promises nothing about them.
    pub(crate) fn prose(path: &str) -> Self {
        let mut inside = false;
        let keep = |line: &str| {
            inside ^= line.starts_with("```");
            if inside || line.starts_with("```") { String::new() } else { line.to_owned() }
        };
        let lines: Vec<String> = source(path).lines().map(keep).collect();
        Self::cut(path, lines.join("\n"))
    }

    fn cut(path: &str, text: String) -> Self {
        let mut page = Self { path: path.to_owned(), text, steps: Vec::new(), headings: Vec::new(), prose: Vec::new() };
        let mut open: Option<Block> = None;
        for (index, line) in page.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (Some(_), Some("")) => page.steps.extend(open.take().map(Step::Block)),
                (Some(block), _) => block.body.push_str(&format!("{line}\n")),
                (None, Some(info)) => open = Some(block(path, index + 1, info)),
                (None, None) => {
                    if let Some(act) = line.strip_prefix("<!-- test: ").and_then(|rest| rest.strip_suffix(" -->")) {
                        let words = act.split(' ').map(str::to_owned).collect();
                        page.steps.push(Step::Act { words, line: index + 1 });
                    } else if line.starts_with('#') {
                        page.headings.push(line.to_owned());
                    }
                    page.prose.push((index + 1, line.to_owned()));
                }
            }
        }
        assert!(open.is_none(), "{path}: a block is not closed");
        page
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.steps.iter().filter_map(|step| if let Step::Block(block) = step { Some(block) } else { None })
    }

    /// The cells of all table rows.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.prose.iter().filter_map(|(_, line)| line.strip_prefix('|')?.strip_suffix('|'));
        rows.map(|row| {
            row.replace("\\|", "\u{1}").split('|').map(|cell| cell.replace('\u{1}', "|").trim().to_owned()).collect()
        })
        .collect()
    }

    /// The row whose first cell is `code`, in backticks.
    pub(crate) fn row(&self, code: &str) -> Vec<String> {
        let named = format!("`{code}`");
        let found = self.rows().into_iter().find(|row| row.first().is_some_and(|cell| *cell == named));
        found.unwrap_or_else(|| panic!("{}: no row begins with {named}", self.path))
    }
}

fn block(path: &str, line: usize, info: &str) -> Block {
    let mut words = info.splitn(3, ' ');
    let (language, how) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let known = INFOS.iter().find(|(known, kind, _)| (*known, *kind) == (language, how));
    let Some((_, _, kind)) = known else {
        panic!("{path}:{line}: a block is marked {info:?}, which says nothing about how it is checked")
    };
    let argument = words.next().unwrap_or_default().to_owned();
    Block { language: language.to_owned(), kind: *kind, argument, body: String::new(), line }
}
