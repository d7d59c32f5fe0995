//! English and Chinese say the same: the same pages, as many headings, the same code; and links lead somewhere.

use std::collections::BTreeSet;

use crate::blocks::{self, Block, Kind, Page};

fn pairs() -> Vec<(Page, Page)> {
    assert_eq!(blocks::names("docs/en"), blocks::names("docs/zh"), "a page is missing in one language");
    // English readers find the map of the code at the root.
    let whole = |page: Page| if page.path == "docs/en/architecture.md" { Page::read("ARCHITECTURE.md") } else { page };
    blocks::english().into_iter().map(whole).zip(blocks::chinese()).collect()
}

#[test]
fn both_languages_have_the_same_headings_and_tables() {
    let level = |heading: &String| heading.chars().take_while(|char| *char == '#').count();
    for (en, zh) in pairs() {
        let (left, right): (Vec<_>, Vec<_>) =
            (en.headings.iter().map(level).collect(), zh.headings.iter().map(level).collect());
        assert_eq!(left, right, "{} and {}: {:#?}\n{:#?}", en.path, zh.path, en.headings, zh.headings);
        assert_eq!(en.rows().len(), zh.rows().len(), "{} and {} differ in table rows", en.path, zh.path);
        let codes = |page: &Page| -> Vec<String> {
            let first = page.rows().into_iter().filter_map(|row| row.into_iter().next());
            first
                .filter(|cell| cell.starts_with('`') && cell.ends_with('`') && cell.matches('`').count() == 2)
                .collect()
        };
        assert_eq!(codes(&en), codes(&zh), "{} and {} explain different things", en.path, zh.path);
    }
}

#[test]
fn both_languages_show_the_same_code() {
    for (en, zh) in pairs() {
        let shown = |page: &Page| -> Vec<Block> {
            page.blocks()
                .filter(|block| (block.language.as_str(), block.kind) != ("text", Kind::Text))
                .cloned()
                .collect()
        };
        let (left, right) = (shown(&en), shown(&zh));
        for (one, other) in left.iter().zip(&right) {
            let places = format!("{}:{} and {}:{}", en.path, one.line, zh.path, other.line);
            assert_eq!((&one.language, one.kind), (&other.language, other.kind), "{places}");
            assert_eq!(bare(one), bare(other), "{places}");
        }
        assert_eq!(left.len(), right.len(), "{} and {} have as many blocks", en.path, zh.path);
        let pictures = |page: &Page| page.blocks().count();
        assert_eq!(pictures(&en), pictures(&zh), "{} and {} have as many pictures", en.path, zh.path);
    }
}

/// Without comments, blank lines and blanks at the ends of lines.
fn bare(block: &Block) -> Vec<String> {
    let mark = match block.language.as_str() {
        "js" | "java" | "go" | "php" | "rust" => "//",
        "sql" => "--",
        "json" | "text" => return block.body.lines().map(str::to_owned).collect(),
        _ => "#",
    };
    let code = |line: &str| {
        let at = line.match_indices(mark).map(|(at, _)| at);
        let comment = at.into_iter().find(|at| line[..*at].is_empty() || line[..*at].ends_with([' ', '\t']));
        line[..comment.unwrap_or(line.len())].trim_end().to_owned()
    };
    block.body.lines().map(code).filter(|line| !line.is_empty()).collect()
}

#[test]
fn links_lead_somewhere() {
    let more = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(Page::prose);
    let pages: Vec<Page> = blocks::english().into_iter().chain(blocks::chinese()).chain(more).collect();
    let mut dead = BTreeSet::new();
    for page in &pages {
        for (line, text) in &page.prose {
            for target in links(text).filter(|target| !target.starts_with("http") && !target.starts_with("mailto:")) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let folder = blocks::root().join(&page.path).parent().unwrap().to_path_buf();
                let path = if file.is_empty() { blocks::root().join(&page.path) } else { folder.join(file) };
                if !path.exists() || !anchor.is_empty() && !anchors(&path).contains(anchor) {
                    dead.insert(format!("{}:{line}: {target}", page.path));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchors that a forge makes of headings.
fn anchors(path: &std::path::Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let plain = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = plain.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    };
    headings.map(slug).collect()
}
