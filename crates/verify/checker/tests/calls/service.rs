//! A small service for tests: numbers under keys.

use stentor_checker::Group;
use stentor_checker::calls::Model;

/// Number of keys.
pub(crate) const KEYS: usize = 6;

/// Numbers under the keys 0 to 5. The commands are `put K V`, which returns the previous value, `add K V`, which
/// returns the sum, and `push K V`, which multiplies the value by ten, adds V, and returns nothing. The reads are `get
/// K` and `sum`.
pub(crate) struct Service;

impl Model for Service {
    type State = [i64; KEYS];

    fn initial(&self, _: Group) -> [i64; KEYS] {
        [0; KEYS]
    }

    fn apply(&self, state: &mut [i64; KEYS], _: Group, operation: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(operation).unwrap();
        let mut words = text.split(' ');
        let (name, key) = (words.next().unwrap(), words.next().unwrap().parse::<usize>().unwrap());
        let value: i64 = words.next().unwrap().parse().unwrap();
        match name {
            "put" => std::mem::replace(&mut state[key], value).to_string().into_bytes(),
            "add" => {
                state[key] += value;
                state[key].to_string().into_bytes()
            }
            "push" => {
                state[key] = state[key].wrapping_mul(10).wrapping_add(value);
                Vec::new()
            }
            _ => panic!("{text}"),
        }
    }

    fn read(&self, state: &[i64; KEYS], _: Group, operation: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(operation).unwrap();
        let answer = match text.split_once(' ') {
            Some((_, key)) => state[key.parse::<usize>().unwrap()],
            None => state.iter().fold(0, |sum, value| sum ^ value.wrapping_mul(31)),
        };
        answer.to_string().into_bytes()
    }
}
