//! Divides the plain text of a play into speaking roles.
//!
//! Plain texts mark speakers in many ways, often in several ways within one file. A play is read in paragraphs, that is
//! lines between blank lines, after its stage directions (in brackets, well or badly closed) are taken out:
//!
//! - The play begins with the first heading (act, scene, prologue, induction) below the list of persons. What stands
//!   above it, and what stands around `*** START OF` and `*** END OF` lines, is not spoken. A text without headings is a
//!   poem and has no roles.
//! - Where most speakers are named in capitals, a cue is a line of capitals, with a full stop, a colon or nothing behind
//!   it. Anywhere but at the beginning of a paragraph, or in front of the speech on the same line, it must be the name of
//!   somebody who speaks elsewhere too.
//! - Where most are named like `Ham.`, a cue is the first line of a paragraph, of capitalised words with a full stop.
//! - Paragraphs without a cue go on with the last speech; after a heading nobody speaks until the next cue. So a
//!   prologue or a song that is nobody's is left out.
//!
//! Short names are completed where the list of persons has exactly one word that begins like them (`Hor.` is Horatio).
//! Several that speak at once are a role of their own, under the name that is printed.

use std::collections::{BTreeMap, BTreeSet};

/// The words of one role in the whole play, in order, with single spaces between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name, in lower case with hyphens.
    pub(crate) name: String,
    pub(crate) text: String,
}

const LONGEST_NAME: usize = 40;

/// The roles of a play, by name; none where the text is not a play.
pub fn roles(text: &str) -> Vec<Role> {
    let text = plain(text);
    let lines = body(&text);
    let is_persons = |line: &&str| {
        let line = line.trim().to_ascii_lowercase();
        line.starts_with("dramatis person") || line.starts_with("persons represented")
    };
    let list = lines.iter().rposition(is_persons).unwrap_or(0);
    let Some(begin) = (list..lines.len()).find(|line| is_heading(lines[*line])) else {
        return Vec::new();
    };
    let persons: BTreeSet<String> = lines[list..begin].iter().flat_map(|line| capitalised(line)).collect();
    let paragraphs: Vec<Vec<String>> = lines[begin..]
        .split(|line| line.trim().is_empty())
        .map(|paragraph| spoken(&paragraph.join("\n")).lines().filter(|line| says(line)).map(tidy).collect())
        .filter(|paragraph: &Vec<String>| !paragraph.is_empty())
        .collect();
    let style = Style::of(&paragraphs);
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut speaker = None;
    for (paragraph, place, line) in numbered(&paragraphs) {
        if is_heading(line) {
            speaker = None;
            continue;
        }
        let mut words = line;
        if is_stanza(line) {
            continue;
        } else if let Some((name, rest)) = style.cue(line, place == 0, place + 1 < paragraph.len()) {
            speaker = Some(slug(&complete(name, &persons)));
            words = rest;
        }
        if let Some(speaker) = speaker.as_ref().filter(|_| !words.is_empty()) {
            let text = texts.entry(speaker.clone()).or_default();
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(words);
        }
    }
    texts.into_iter().map(|(name, text)| Role { name, text }).collect()
}

/// Replaces typographic and accented letters by ASCII, unifies brackets, and drops marks of italics.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\u{2018}' | '\u{2019}' => plain.push('\''),
            '\u{201c}' | '\u{201d}' => plain.push('"'),
            '\u{2013}' => plain.push('-'),
            '\u{2014}' => plain.push_str("--"),
            '\u{e0}'..='\u{e5}' => plain.push('a'),
            '\u{e6}' => plain.push_str("ae"),
            '\u{c6}' => plain.push_str("Ae"),
            '\u{e7}' => plain.push('c'),
            '\u{e8}'..='\u{eb}' => plain.push('e'),
            '\u{c8}'..='\u{cb}' => plain.push('E'),
            '\u{ec}'..='\u{ef}' => plain.push('i'),
            '\u{f2}'..='\u{f6}' => plain.push('o'),
            '\u{f9}'..='\u{fc}' => plain.push('u'),
            '\u{153}' => plain.push_str("oe"),
            '{' => plain.push('['),
            '}' => plain.push(']'),
            '_' | '\r' | '\u{feff}' => {}
            letter => plain.push(letter),
        }
    }
    plain
}

/// The lines without the distributor's header and footer.
fn body(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines.iter().position(|line| line.starts_with("*** START OF")).map_or(0, |line| line + 1);
    let is_end = |line: &&str| line.starts_with("*** END OF") || line.starts_with("End of Project Gutenberg");
    let end = lines[begin..].iter().position(is_end).map_or(lines.len(), |line| begin + line);
    lines[begin..end].to_vec()
}

/// Whether a part of the play begins here, or the play ends.
fn is_heading(line: &str) -> bool {
    const PARTS: [&str; 5] = ["INDUCTION", "PROLOGUE", "EPILOGUE", "DUMB SHOW", "FINIS"];
    const NUMBERS: [&str; 5] = ["FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH"];
    let line = line.trim();
    let Some((part, rest)) = line.split_once(char::is_whitespace) else {
        return PARTS.contains(&line.trim_end_matches('.'));
    };
    let rest = rest.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    let is_number =
        is_roman(number) || number.parse::<u32>().is_ok() || NUMBERS.contains(&number.to_uppercase().as_str());
    match part {
        "ACT" | "SCENE" => is_number,
        // Not `Act I have a mind to`.
        "Act" | "Scene" => is_number && !rest.starts_with(|letter: char| letter.is_whitespace() || letter == '\''),
        // The end, the epilogue, the order of the coronation.
        "THE" => line == line.to_uppercase(),
        _ => PARTS.contains(&line.trim_end_matches('.')),
    }
}

fn is_roman(number: &str) -> bool {
    !number.is_empty() && number.chars().all(|letter| "IVXL".contains(letter))
}

/// Whether this only announces a song or a stanza.
fn is_stanza(line: &str) -> bool {
    let mark = line.trim_end_matches('.');
    mark.eq_ignore_ascii_case("song") || is_roman(mark)
}

/// A paragraph without its stage directions. An unclosed bracket ends with its line, or with the paragraph where the line
/// begins with it; text before a closing bracket that was never opened is a direction too.
fn spoken(paragraph: &str) -> String {
    let mut kept = String::new();
    let mut rest = paragraph;
    while let Some(at) = rest.find(['[', ']']) {
        kept.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if rest[at..].starts_with(']') {
            let first = kept.lines().next().unwrap_or_default();
            let is_name = first.contains(|letter: char| letter.is_uppercase()) && first == first.to_uppercase();
            if !is_name && !is_heading(first) {
                kept.clear();
            }
            rest = after;
            continue;
        }
        let begins = kept.rsplit('\n').next().is_none_or(|line| line.trim().is_empty());
        let line = after.find('\n').unwrap_or(after.len());
        let reopened = after[line..].find('[').map_or(after.len(), |place| line + place);
        rest = match after[..reopened].find(']') {
            Some(close) => &after[close + 1..],
            None if begins => "",
            None => &after[line..],
        };
    }
    kept + rest
}

/// Whether a line is more than punctuation.
fn says(line: &str) -> bool {
    line.contains(|letter: char| letter.is_alphanumeric())
}

/// With single spaces, and none before a full stop.
fn tidy(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ").replace(" .", ".")
}

fn numbered(paragraphs: &[Vec<String>]) -> impl Iterator<Item = (&[String], usize, &str)> {
    paragraphs.iter().flat_map(|paragraph| {
        paragraph.iter().enumerate().map(|(place, line)| (paragraph.as_slice(), place, line.as_str()))
    })
}

enum Style {
    /// In capitals; these are the names.
    Capitals(BTreeSet<String>),
    /// Like `Ham.`, in front of a paragraph.
    Short,
}

impl Style {
    fn of(paragraphs: &[Vec<String>]) -> Self {
        let (mut names, mut cues, mut short) = (BTreeSet::new(), 0, 0);
        for (paragraph, place, line) in numbered(paragraphs).filter(|(_, place, line)| *place == 0 && !is_heading(line))
        {
            let more = place + 1 < paragraph.len();
            match in_capitals(line).filter(|(_, stopped)| *stopped || more) {
                Some((name, _)) => {
                    cues += 1;
                    names.insert(name);
                }
                None => short += usize::from(more && is_short(line)),
            }
        }
        if cues >= short { Style::Capitals(names) } else { Style::Short }
    }

    /// The speaker that a line names, and what is said on the same line.
    fn cue<'a>(&self, line: &'a str, first: bool, more: bool) -> Option<(String, &'a str)> {
        let Style::Capitals(names) = self else {
            return (first && more && is_short(line)).then(|| (line.trim_end_matches('.').to_uppercase(), ""));
        };
        if let Some((name, stopped)) = in_capitals(line)
            && (names.contains(&name) || first && (stopped || more))
        {
            return Some((name, ""));
        }
        let named = line.trim_end_matches('.').to_uppercase();
        if first && more && line.ends_with('.') && names.contains(&named) {
            return Some((named, ""));
        }
        let stops = line.match_indices(['.', ':']).map(|(place, _)| place).take_while(|place| *place <= LONGEST_NAME);
        stops.filter(|stop| line[stop + 1..].starts_with(' ')).find_map(|stop| {
            let (name, _) = in_capitals(&line[..=stop])?;
            names.contains(&name).then(|| (name, line[stop + 1..].trim_start()))
        })
    }
}

/// The name that a whole line of capitals is, and whether a stop ends it. A few small letters are slips of the pen.
fn in_capitals(line: &str) -> Option<(String, bool)> {
    let name = line.trim_end_matches(['.', ':', '-']);
    let stopped = name.len() < line.len();
    let (mut capitals, mut small) = (0, 0);
    for letter in name.chars() {
        match letter {
            'A'..='Z' => capitals += 1,
            'a'..='z' => small += 1,
            '0'..='9' | ' ' | '\'' | '&' | ',' | '.' | '-' => {}
            _ => return None,
        }
    }
    let fits =
        name.len() <= LONGEST_NAME && capitals > 1 && !is_roman(name) && capitals > small && (stopped || small == 0);
    fits.then(|| (name.to_uppercase(), stopped))
}

/// Whether a line is a name of capitalised words with a full stop behind it.
fn is_short(line: &str) -> bool {
    let Some(name) = line.strip_suffix('.') else { return false };
    let is_word = |word: &str| {
        matches!(word, "and" | "of" | "the")
            || word.starts_with(|letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit())
                && word.chars().all(|letter| letter.is_ascii_alphanumeric())
    };
    name.len() <= LONGEST_NAME && name.split(' ').count() <= 3 && name.split(' ').all(is_word)
}

/// The capitalised words of a line, in capitals.
fn capitalised(line: &str) -> impl Iterator<Item = String> {
    let words = line.split(|letter: char| !letter.is_alphabetic());
    words.filter(|word| word.len() > 2 && word.starts_with(char::is_uppercase)).map(str::to_uppercase)
}

/// The one person whose name begins like this, unless it is a name itself. A messenger is not `Messengers`.
fn complete(name: String, persons: &BTreeSet<String>) -> String {
    let mut longer = persons.range(name.clone()..).take_while(|person| person.starts_with(&name));
    match (longer.next(), longer.next()) {
        (Some(person), None) if person[name.len()..] != *"S" => person.clone(),
        _ => name,
    }
}

/// In lower case, with hyphens between words.
fn slug(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(String, String)> {
        roles(text).into_iter().map(|role| (role.name, role.text)).collect()
    }

    fn pairs<const COUNT: usize>(pairs: [(&str, &str); COUNT]) -> Vec<(String, String)> {
        pairs.map(|(name, text)| (name.into(), text.into())).to_vec()
    }

    #[test]
    fn capitals_with_stops_of_all_kinds() {
        let text = "THE PLAY\n\nby Nobody\n\nDRAMATIS PERSONAE\n\nTHE DUKE.\nANGELO, a Goldsmith.\n\nSCENE: Ephesus\n\n\nACT I.\n\n\
            SCENE 1. A hall in the DUKE'S\npalace.\n\n[Enter the DUKE.]\n\nDUKE.\nProceed,   good  sir.\nSpeak [aside] on. [Exit\nAngelo.]\n\n\
            MRS. FORD. \nI will.\nANGELO. No, I.\n\nDUKE\nSo be it.\n\n[Music.]\n\nGo on:\n\nDuke.\nOnce more.\n\nDUKE [Sighing].\nAh!\n\n\
            ACT FIFTH. SCENE I.\n\nA street, and nobody.\n\nANGELO:\nAct of mine!\nMRS. FORD.\nEnd.\n\nTHE END";
        assert_eq!(
            told(text),
            pairs([
                ("angelo", "No, I. Act of mine!"),
                ("duke", "Proceed, good sir. Speak on. So be it. Go on: Once more. Ah!"),
                ("mrs-ford", "I will. End."),
            ])
        );
    }

    #[test]
    fn short_names_are_completed_by_the_list_of_persons() {
        let text = "HAMLET\n\nPersons Represented.\n\nClaudius, King of Denmark.\nHoratio, Friend to Hamlet.\nCornelius.\n\
            Cordelia.\nMessengers.\n\nAct I.\n\nScene I. Elsinore.\n\n[Enter Horatio.]\n\nHor.\nGood Hamlet.\nStay.\n\nKing.\n\
            No.\n\nHam.\nSo.\n\n[Flourish.]\n\nCome, Horatio.\n\nCor.\nI?\n\nRos and Guil.\nWe.\n\nMessenger.\nNews.";
        assert_eq!(
            told(text),
            pairs([
                ("cor", "I?"),
                ("hamlet", "So. Come, Horatio."),
                ("horatio", "Good Hamlet. Stay."),
                ("king", "No."),
                ("messenger", "News."),
                ("ros-and-guil", "We."),
            ])
        );
    }

    #[test]
    fn names_without_stops_songs_and_prologues() {
        let text = "PERSONS REPRESENTED\n\nPUCK.\n\nPROLOGUE\n\nTwo households.\n\nACT 1\nSCENE 1\n\nPUCK\nHere, villain.\n\n   SONG.\n\n\
            Over hill.\n\nII.\n\nOver dale.\n\nPYRAMUS\nO WALL, O sweet.\n\nSCENE II. Elsewhere.\n\nPUCK\nGone.\n\nEPILOGUE\n\nIf we.";
        assert_eq!(
            told(text),
            pairs([("puck", "Here, villain. Over hill. Over dale. Gone."), ("pyramus", "O WALL, O sweet.")])
        );
    }

    #[test]
    fn distributors_words_contents_and_poems_are_not_spoken() {
        let text = "\u{feff}Licence\n\n*** START OF THE EBOOK ***\r\n\r\nContents\r\nACT I\r\nScene I. A hall.\r\n\r\nDramatis Person\u{e6}\r\n\r\n\
            KING LEWIS\r\nLORDS\r\n\r\nACT I\r\n\r\nKING.\r\n\u{201c}Don\u{2019}t\u{201d}\u{2014}_ever_, caf\u{e9}.\r\n\r\n*** END OF THE EBOOK ***\r\n\r\nKING.\r\nDonate.";
        assert_eq!(told(text), pairs([("king", "\"Don't\"--ever, cafe.")]));
        assert_eq!(
            told("THE SONNETS\n\nI\n\nFROM fairest creatures\nwe desire increase.\n\nII\n\nWhen forty winters."),
            []
        );
    }

    #[test]
    fn directions_are_left_out_however_they_are_closed() {
        let spoken = |text: &str| spoken(text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(spoken("Come [to\nHORATIO] here."), "Come here.");
        assert_eq!(spoken("You shall. [Exit.\nThus are [Alarum.] poor"), "You shall. Thus are poor");
        assert_eq!(spoken("[Enter MENENIUS\nand others"), "");
        assert_eq!(spoken("[Enter POSTHUMUS [with a handkerchief.]"), "");
        assert_eq!(spoken("Enter Simonides, and meets\nhim.]\nHail."), "Hail.");
        assert_eq!(spoken("[The GHOSTS] vanish.]"), "");
        assert_eq!(spoken("FIRST KNIGHT.]\nGood morrow."), "FIRST KNIGHT. Good morrow.");
    }

    #[test]
    fn headings_are_told_from_speech() {
        for heading in ["ACT I.", "Act 2", "SCENE IV. Rome.", "ACT FIRST", "Scene I.--Athens", "PROLOGUE.", "THE END"] {
            assert!(is_heading(heading), "{heading}");
        }
        for speech in ["Act I do.", "Scene individable", "The end", "THE end of war", "ACTAEON.", "Prologue.", "ACT."] {
            assert!(!is_heading(speech), "{speech}");
        }
    }
}
