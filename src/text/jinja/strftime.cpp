// strftime as Python on Linux gives it for a naive local time, in English whatever the locale.
#include <array>
#include <string>

#include "text/jinja/eval.h"

namespace llmgen::jinja {
namespace {

constexpr std::array kDays = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::array kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                "July",    "August",   "September", "October", "November", "December"};

std::string pad(long long value, int width, char fill, char flag) {
    if (flag == '-') fill = '\0';
    if (flag == '_') fill = ' ';
    if (flag == '0') fill = '0';
    std::string digits = std::to_string(value < 0 ? -value : value);
    const int missing = fill ? width - int(digits.size()) : 0;
    if (missing > 0) digits.insert(0, std::size_t(missing), fill);
    return value < 0 ? "-" + digits : digits;
}

// ISO 8601: the week that holds the year's first Thursday is week 1.
void iso_week(const std::tm& t, int& year, int& week) {
    const int weekday = (t.tm_wday + 6) % 7;  // Monday is 0
    year = t.tm_year + 1900;
    week = (t.tm_yday - weekday + 10) / 7;
    const auto weeks_in = [](int y) {
        const auto p = [](int x) { return (x + x / 4 - x / 100 + x / 400) % 7; };
        return 52 + (p(y) == 4 || p(y - 1) == 3);
    };
    if (week < 1) {
        --year;
        week = weeks_in(year);
    } else if (week > weeks_in(year)) {
        week = 1;
        ++year;
    }
}

// Days since 1970-01-01 in the proleptic Gregorian calendar.
long long days_from_epoch(const std::tm& t) {
    const long long y = t.tm_year + 1900 - 1;
    return y * 365 + y / 4 - y / 100 + y / 400 + t.tm_yday - 719162;
}

std::string upper(std::string s) {
    for (char& c : s)
        if (c >= 'a' && c <= 'z') c = char(c - 32);
    return s;
}

std::string expand(const std::tm& t, char code, char flag) {
    const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
    const int year = t.tm_year + 1900;
    int iso_year = 0, week = 0;
    iso_week(t, iso_year, week);
    const std::string day = kDays[std::size_t(t.tm_wday)], month = kMonths[std::size_t(t.tm_mon)];
    const auto text = [&](const std::string& s) { return flag == '^' || flag == '#' ? upper(s) : s; };
    switch (code) {
        case 'a':
            return text(day.substr(0, 3));
        case 'A':
            return text(day);
        case 'b':
        case 'h':
            return text(month.substr(0, 3));
        case 'B':
            return text(month);
        case 'c':
            return strftime(t, "%a %b %e %H:%M:%S %Y");
        case 'C':
            return pad(year / 100, 2, '0', flag);
        case 'd':
            return pad(t.tm_mday, 2, '0', flag);
        case 'D':
            return strftime(t, "%m/%d/%y");
        case 'e':
            return pad(t.tm_mday, 2, ' ', flag);
        case 'f':
            return "000000";
        case 'F':
            return strftime(t, "%Y-%m-%d");
        case 'g':
            return pad(iso_year % 100, 2, '0', flag);
        case 'G':
            return pad(iso_year, 4, '0', flag);
        case 'H':
            return pad(t.tm_hour, 2, '0', flag);
        case 'I':
            return pad(hour12, 2, '0', flag);
        case 'j':
            return pad(t.tm_yday + 1, 3, '0', flag);
        case 'k':
            return pad(t.tm_hour, 2, ' ', flag);
        case 'l':
            return pad(hour12, 2, ' ', flag);
        case 'm':
            return pad(t.tm_mon + 1, 2, '0', flag);
        case 'M':
            return pad(t.tm_min, 2, '0', flag);
        case 'n':
            return "\n";
        case 'p':
            return flag == '#' ? (t.tm_hour < 12 ? "am" : "pm") : (t.tm_hour < 12 ? "AM" : "PM");
        case 'P':
            return flag == '^' ? (t.tm_hour < 12 ? "AM" : "PM") : (t.tm_hour < 12 ? "am" : "pm");
        case 'r':
            return strftime(t, "%I:%M:%S %p");
        case 'R':
            return strftime(t, "%H:%M");
        case 's':
            return pad(days_from_epoch(t) * 86400 + t.tm_hour * 3600 + t.tm_min * 60 + t.tm_sec - t.tm_gmtoff,
                       1, '\0', flag);
        case 'S':
            return pad(t.tm_sec, 2, '0', flag);
        case 't':
            return "\t";
        case 'T':
            return strftime(t, "%H:%M:%S");
        case 'u':
            return pad(t.tm_wday == 0 ? 7 : t.tm_wday, 1, '0', flag);
        case 'U':
            return pad((t.tm_yday + 7 - t.tm_wday) / 7, 2, '0', flag);
        case 'V':
            return pad(week, 2, '0', flag);
        case 'w':
            return pad(t.tm_wday, 1, '0', flag);
        case 'W':
            return pad((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2, '0', flag);
        case 'x':
            return strftime(t, "%m/%d/%y");
        case 'X':
            return strftime(t, "%H:%M:%S");
        case 'y':
            return pad(year % 100, 2, '0', flag);
        case 'Y':
            return pad(year, 1, '0', flag);
        case 'z':
        case 'Z':
            return "";  // a naive time has no zone
        case '%':
            return "%";
        default:
            return {};
    }
}

}  // namespace

// %[flags][width][E|O]code, as the C library has it.
std::string strftime(const std::tm& t, std::string_view format) {
    std::string out;
    for (std::size_t at = 0; at < format.size(); ++at) {
        if (format[at] != '%' || at + 1 >= format.size()) {
            out += format[at];
            continue;
        }
        const std::size_t begin = at++;
        char flag = '\0';
        while (at < format.size() && std::string_view("-_0^#").find(format[at]) != std::string_view::npos)
            flag = format[at++];
        int width = 0;
        for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at)
            if ((width = width * 10 + (format[at] - '0')) > 4096)
                raise("ResourceError", "a date that is too wide");
        while (at < format.size() && (format[at] == 'E' || format[at] == 'O')) ++at;
        const char code = at < format.size() ? format[at] : '\0';
        const bool known =
            code != '\0' && std::string_view("aAbBcCdDeFfgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%").find(code) !=
                                std::string_view::npos;
        const std::string text =
            known ? expand(t, code, flag)
                  : std::string(format.substr(begin, std::min(at + 1, format.size()) - begin));
        const bool number =
            known && std::string_view("CdgGHIjmMsSuUVwWyY").find(code) != std::string_view::npos;
        const char fill = flag == '_' ? ' ' : flag == '0' || (number && flag != '-') ? '0' : ' ';
        if (int(text.size()) < width) out.append(std::size_t(width) - text.size(), fill);
        out += text;
    }
    return out;
}

}  // namespace llmgen::jinja
