//! A strict JSON parser for the reports of `--against` and the files of `--library`. An error
//! begins with line and column.

use crate::registry::json::{Json, Map};

/// A JSON text, and the offset in bytes up to which it is parsed.
pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// The maximum depth of nested arrays and objects, as in the build's JSON parser.
const DEPTH: usize = 128;

/// Parses a whole JSON text. An error begins with `line:column`.
pub(super) fn parse(text: &str) -> Result<Json, String> {
    let mut p = Parser::new(text.trim_start_matches('\u{feff}'));
    let value = p.value(DEPTH)?;
    p.blanks();
    if p.peek().is_some() {
        Err(p.fail("expected nothing after the value"))
    } else {
        Ok(value)
    }
}

impl Parser<'_> {
    pub(super) fn new(text: &str) -> Parser<'_> {
        Parser { text, at: 0 }
    }

    pub(super) fn fail(&self, what: &str) -> String {
        self.fail_at(self.at, what)
    }

    /// Returns the error `line:column: what` for the byte offset `at` of the text. Columns are
    /// counted in characters.
    pub(super) fn fail_at(&self, at: usize, what: &str) -> String {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        format!("{line}:{column}: {what}")
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips blanks, and returns the byte offset at which the next value begins.
    pub(super) fn start(&mut self) -> usize {
        self.blanks();
        self.at
    }

    /// Skips blanks, then consumes `byte` if it comes next. Returns true if it consumed `byte`.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Result<(), String> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.fail(what))
        }
    }

    pub(super) fn word(&mut self, word: &str) -> Result<(), String> {
        self.blanks();
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fail("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    pub(super) fn truth(&mut self) -> Result<bool, String> {
        self.blanks();
        match self.peek() {
            Some(b't') => self.word("true").map(|()| true),
            Some(b'f') => self.word("false").map(|()| false),
            _ => Err(self.fail("expected true or false")),
        }
    }

    /// Marks a key of an object as seen. Returns an error if the object had the key before.
    pub(super) fn once(&self, seen: &mut bool, key: &str) -> Result<(), String> {
        if std::mem::replace(seen, true) {
            Err(self.fail(&format!("\"{key}\" twice")))
        } else {
            Ok(())
        }
    }

    /// Returns an error if one of `keys` was not seen in the object.
    pub(super) fn all(&self, seen: &[bool], keys: &[&str]) -> Result<(), String> {
        match seen.iter().position(|s| !s) {
            Some(i) => Err(self.fail(&format!("\"{}\" is missing", keys[i]))),
            None => Ok(()),
        }
    }

    pub(super) fn object(
        &mut self,
        each: &mut dyn FnMut(&mut Self, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(b'{', "expected {")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "expected :")?;
            each(self, &key)?;
            if self.take(b'}') {
                return Ok(());
            }
            self.expect(b',', "expected , or }")?;
        }
    }

    pub(super) fn array(
        &mut self,
        each: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(b'[', "expected [")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            each(self)?;
            if self.take(b']') {
                return Ok(());
            }
            self.expect(b',', "expected , or ]")?;
        }
    }

    pub(super) fn strings(&mut self) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        self.array(&mut |p| {
            all.push(p.string()?);
            Ok(())
        })?;
        Ok(all)
    }

    pub(super) fn string(&mut self) -> Result<String, String> {
        self.expect(b'"', "expected a string")?;
        let mut s = String::new();
        loop {
            // Text up to the next quote, backslash or control character is copied unchanged. These
            // three are ASCII, so no character is split.
            let rest = &self.text[self.at..];
            let plain = rest
                .bytes()
                .position(|b| b == b'"' || b == b'\\' || b < b' ')
                .unwrap_or(rest.len());
            s.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(s);
                }
                Some(b'\\') => s.push(self.escape()?),
                _ => return Err(self.fail("a string that does not end on its line")),
            }
        }
    }

    pub(super) fn escape(&mut self) -> Result<char, String> {
        let start = self.at;
        self.at += 2;
        let c = match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut code = self.hex(start)?;
                if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let low = self.hex(start)?.wrapping_sub(0xdc00);
                    if low < 0x400 {
                        code = 0x10000 + ((code - 0xd800) << 10 | low);
                    }
                }
                match char::from_u32(code) {
                    Some(c) => c,
                    None => return Err(self.fail_at(start, "half of a character")),
                }
            }
            _ => return Err(self.fail_at(start, "an unknown escape")),
        };
        Ok(c)
    }

    /// Reads four hexadecimal digits. Errors name the byte offset `start`.
    pub(super) fn hex(&mut self, start: usize) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            match self.peek().and_then(|b| char::from(b).to_digit(16)) {
                Some(d) => code = code * 16 + d,
                None => return Err(self.fail_at(start, "expected four hexadecimal digits")),
            }
            self.at += 1;
        }
        Ok(code)
    }

    pub(super) fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    /// Parses a number in JSON's syntax. `null` becomes NaN.
    pub(super) fn number(&mut self) -> Result<f64, String> {
        let start = self.start();
        if self.peek() == Some(b'n') {
            return self.word("null").map(|()| f64::NAN);
        }
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        let whole = self.digits();
        let mut fine = whole > 0 && !(zero && whole > 1);
        if self.peek() == Some(b'.') {
            self.at += 1;
            fine &= self.digits() > 0;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            fine &= self.digits() > 0;
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(x) if fine && x.is_finite() => Ok(x),
            _ => Err(self.fail_at(start, "expected a number")),
        }
    }

    /// Parses a value with at most `depth` levels of nesting.
    fn value(&mut self, depth: usize) -> Result<Json, String> {
        let start = self.start();
        if depth == 0 {
            return Err(self.fail("nested too deeply"));
        }
        Ok(match self.peek() {
            Some(b'{') => {
                let mut map = Map::new();
                self.object(&mut |p, key| {
                    if map.contains_key(key) {
                        return Err(p.fail(&format!("\"{key}\" twice")));
                    }
                    map.insert(key.into(), p.value(depth - 1)?);
                    Ok(())
                })?;
                Json::Object(map)
            }
            Some(b'[') => {
                let mut list = Vec::new();
                self.array(&mut |p| {
                    list.push(p.value(depth - 1)?);
                    Ok(())
                })?;
                Json::Array(list)
            }
            Some(b'"') => Json::String(self.string()?),
            Some(b't' | b'f') => Json::Bool(self.truth()?),
            Some(b'n') => self.word("null").map(|()| Json::Null)?,
            _ => {
                let number = self.number()?;
                self.text[start..self.at]
                    .parse()
                    .map_or(Json::Number(number), Json::Whole)
            }
        })
    }

    /// Skips a value of any type, with at most `depth` levels of nesting.
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), String> {
        self.value(depth).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The build's JSON parser and this one read the same values, and refuse the same texts.
    #[test]
    fn values_are_those_of_the_build() {
        let library = std::fs::read_to_string("kernels/library.json").unwrap();
        let many = r#"{"a": [0, 1.0, -1, -0.5, 1e3, 18446744073709551615, null, true,
            "x\u00e4\n\"ß"], "b": {"c": []}}"#;
        for text in [&*library, many, "\u{feff} 7 ", "[]", "\"\""] {
            let mut mistakes = crate::bake::Mistakes::default();
            let value = crate::bake::json::parse(text, "f", &mut mistakes);
            assert_eq!(Some(parse(text).unwrap()), value, "{text:.80} {mistakes:?}");
        }
        for text in [
            "",
            "{\"a\":1,\"a\":2}",
            "[1,]",
            "[1 2]",
            "01",
            "+1",
            "nul",
            "{a:1}",
            "\"a\nb\"",
            "1 2",
        ] {
            assert!(
                crate::bake::json::parse(text, "f", &mut Default::default()).is_none(),
                "{text}"
            );
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            parse("{\n \"a\": 1,\n \"a\": 2}").unwrap_err(),
            "3:6: \"a\" twice"
        );
        assert!(
            parse(&"[".repeat(1_000_000))
                .unwrap_err()
                .ends_with("nested too deeply")
        );
    }
}
