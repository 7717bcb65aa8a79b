/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a regular expression cannot do. Separators between digits are ignored. */
#include <string.h>

#include "base/str.h"
#include "filter/rules.h"

enum {
	DIGITS_MAX = 40,
	DIFFERENT_MIN = 6,
	CPF = 11,
	DNI = 8,
};

/* Returns the number of digits, at most DIGITS_MAX. */
static size_t digits_of(const char *s, size_t n, uint8_t ret[static DIGITS_MAX])
{
	size_t k = 0;

	for (size_t i = 0; i < n && k < DIGITS_MAX; i++)
		if (ascii_is_digit(s[i]))
			ret[k++] = (uint8_t)(s[i] - '0');
	return k;
}

static bool is_random(const char *s, size_t n)
{
	bool letter = false, digit = false, seen[256] = { false };
	unsigned int different = 0;

	for (size_t i = 0; i < n; i++) {
		bool *was = &seen[(uint8_t)s[i]];

		letter |= ascii_is_lower(ascii_lower(s[i]));
		digit |= ascii_is_digit(s[i]);
		different += !*was;
		*was = true;
	}
	return letter && digit && different >= DIFFERENT_MIN;
}

static bool is_luhn(const char *s, size_t n)
{
	uint8_t d[DIGITS_MAX];
	const size_t k = digits_of(s, n, d);
	unsigned int sum = 0;
	bool same = true;

	for (size_t i = 0; i < k; i++) {
		const unsigned int x = d[k - 1 - i] << (i % 2);

		sum += x > 9 ? x - 9 : x;
		same &= d[i] == d[0];
	}
	return k > 0 && !same && sum % 10 == 0;
}

static bool is_iban(const char *s, size_t n)
{
	char text[DIGITS_MAX];
	unsigned int rest = 0;
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (s[i] != ' ') {
			if (k == sizeof(text))
				return false;
			text[k++] = s[i];
		}
	/* The shortest, Norway's, has 15 characters; the longest has 34. */
	if (k < 15 || k > 34)
		return false;
	for (size_t i = 0; i < k; i++) {
		const char c = text[(i + 4) % k];

		rest = ascii_is_digit(c) ? rest * 10 + (unsigned int)(c - '0')
					 : rest * 100 + (unsigned int)(c - 'A') + 10;
		rest %= 97;
	}
	return rest == 1;
}

static bool is_ssn(const char *s, size_t n)
{
	return n == 11 && memcmp(s, "000", 3) != 0 && memcmp(s, "666", 3) != 0 &&
	       memcmp(s + 4, "00", 2) != 0 && memcmp(s + 7, "0000", 4) != 0;
}

static unsigned int cpf_digit(const uint8_t *d, unsigned int n)
{
	unsigned int sum = 0;

	for (unsigned int i = 0; i < n; i++)
		sum += d[i] * (n + 1 - i);
	return sum * 10 % 11 % 10;
}

static bool is_cpf(const char *s, size_t n)
{
	uint8_t d[DIGITS_MAX];
	bool same = true;

	if (digits_of(s, n, d) != CPF)
		return false;
	for (size_t i = 0; i < CPF; i++)
		same &= d[i] == d[0];
	return !same && cpf_digit(d, CPF - 2) == d[CPF - 2] && cpf_digit(d, CPF - 1) == d[CPF - 1];
}

static bool is_ean(const char *s, size_t n)
{
	uint8_t d[DIGITS_MAX];
	const size_t k = digits_of(s, n, d);
	unsigned int sum = 0;

	for (size_t i = 0; i < k; i++)
		sum += d[i] * (i % 2 ? 3U : 1U);
	return k == 13 && sum % 10 == 0;
}

/* The check digit of the dihedral group of order 10. */
static bool is_verhoeff(const char *s, size_t n)
{
	static const char product[10][11] = { "0123456789", "1234067895", "2340178956",
					      "3401289567", "4012395678", "5987604321",
					      "6598710432", "7659821043", "8765932104",
					      "9876543210" };
	static const char permuted[8][11] = { "0123456789", "1576283094", "5803796142",
					      "8916043527", "9453126870", "4286573901",
					      "2793806415", "7046913258" };
	uint8_t d[DIGITS_MAX];
	const size_t k = digits_of(s, n, d);
	int c = 0;

	for (size_t i = 0; i < k; i++)
		c = product[c][permuted[i % 8][d[k - 1 - i]] - '0'] - '0';
	return k > 0 && c == 0;
}

static bool is_dni(const char *s, size_t n)
{
	uint8_t d[DIGITS_MAX];
	unsigned int number = 0;

	if (digits_of(s, n, d) != DNI)
		return false;
	for (size_t i = 0; i < DNI; i++)
		number = number * 10 + d[i];
	return s[n - 1] == "TRWAGMYFPDXBNJZSQVHLCKE"[number % 23];
}

bool filter_check_passes(enum filter_check check, const char *s, size_t n)
{
	static bool (*const checks[FILTER_CHECKS])(const char *, size_t) = {
		[FILTER_CHECK_RANDOM] = is_random,     [FILTER_CHECK_LUHN] = is_luhn,
		[FILTER_CHECK_IBAN] = is_iban,	       [FILTER_CHECK_SSN] = is_ssn,
		[FILTER_CHECK_CPF] = is_cpf,	       [FILTER_CHECK_EAN] = is_ean,
		[FILTER_CHECK_VERHOEFF] = is_verhoeff, [FILTER_CHECK_DNI] = is_dni,
	};

	return !checks[check] || checks[check](s, n);
}
